//! All routes of a deployment: which one a request is of, and which requests none may take.
//!
//! `settings` says what a route is, and `config` reads it. All regions share one set of routes.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};

pub use super::choices::{
    Accept, Alone, Binding, Dialect, Escrow, KeyHeaders, Mismatch, Mode, NEVER_REPLAYED, REPLAY_HEADERS,
};
pub use super::path::PathPattern;
use super::path::Plain;
pub use super::settings::{Policy, Protection, Route};
use crate::protocol::digest::digest;
use crate::protocol::escrow::Meanings;
use crate::protocol::lifetime::Retention;

/// Placeholder for the route of a request that no route takes.
pub(in crate::gateway) const NO_ROUTE: &str = "-";
/// Time for which the upstream may be silent about a request that no route takes.
pub const UNLISTED_TIMEOUT: Duration = Duration::from_secs(60);

/// All routes, in order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Routes(pub Vec<Route>);

/// Decision of the routes about a request.
#[derive(Clone, Copy, Debug)]
pub enum Matched<'a> {
    /// This route's protection applies.
    Route(&'a Route),
    /// No route; the method is safe or idempotent by itself, so it streams straight through.
    PassThrough,
    /// Refused, so that nothing passes a route with keys by oversight.
    Refused(Refused),
}

impl Matched<'_> {
    /// True if the request has a key.
    pub fn has_key(&self, headers: &HeaderMap) -> bool {
        match self {
            Matched::Route(route) if let Some(policy) = route.policy() => {
                policy.key_headers.from.iter().any(|name| headers.contains_key(name))
            }
            _any => headers.contains_key("idempotency-key"),
        }
    }
}

/// Reason why the routes refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No route takes it and its method may change state each time, or its path climbs.
    NoRoute,
    /// Its path is another spelling of one that a route with keys takes.
    Spelling,
    /// A header names another method or path, and its route does not allow that.
    Override,
}

/// Headers by which some frameworks take another method than that of the request.
const METHOD_OVERRIDES: [&str; 4] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-method"];
/// Headers by which some frameworks take another path than that of the request.
const PATH_OVERRIDES: [&str; 4] = ["x-original-url", "x-original-uri", "x-rewrite-url", "x-override-url"];

impl Routes {
    /// All policies, of routes that look at keys.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.0.iter().filter_map(Route::policy)
    }

    /// The longest life that a route promises.
    pub fn longest_life(&self) -> Option<Retention> {
        self.policies().map(|policy| policy.life()).max()
    }

    /// A digest of each route's meaning, by name: its requests, the recovery of its keys and its
    /// escrow. Earlier routes say which requests it gets, so they are part of it.
    pub fn meanings(&self) -> Meanings {
        let mut taken = String::new();
        let mut meanings = Meanings::new();
        for route in &self.0 {
            let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
            // Writing to a `String` cannot fail.
            let _ = writeln!(taken, "{methods:?} {:?}", route.path.as_str());
            if let Some(policy) = route.policy() {
                let how = format!("{} {}", policy.recovery, policy.escrow.name());
                let parts: [&[u8]; 2] = [taken.as_bytes(), how.as_bytes()];
                meanings.insert(route.name.clone(), digest("onceway/route-meaning/1", &parts));
            }
        }
        meanings
    }

    /// The policy under which a doubt is ended whose request is not at hand: that of the routes
    /// that take its path, unless their methods make a difference. The route's name in a record
    /// says nothing: it is from the files of some region at some time.
    pub fn of_path(&self, path: &str) -> Option<&Arc<Policy>> {
        let (mut taken, mut found) = (Vec::new(), None);
        for route in self.0.iter().filter(|route| route.path.matches(path)) {
            let any = route.methods.is_empty();
            let takes = any || route.methods.iter().any(|method| !taken.contains(&method));
            match (route.policy().filter(|_| takes), found) {
                (Some(policy), None) => found = Some(policy),
                (Some(policy), Some(other)) if !policy.ends_alike(other) => return None,
                (Some(_), Some(_)) | (None, _) => {}
            }
            if any {
                break;
            }
            taken.extend(&route.methods);
        }
        found
    }

    /// The first route that takes this request. It is refused if its upstream may find another
    /// resource, one that needs a key: by a path that climbs, or is spelt otherwise, or by an
    /// overriding header.
    pub fn find(&self, method: &Method, path: &str, headers: &HeaderMap) -> Matched<'_> {
        let takes = |route: &Route| route.takes(method) && route.path.matches(path);
        let found = self.0.iter().position(takes);
        let route = found.map(|number| &self.0[number]);
        if !method.is_safe() {
            let plain = Plain::of(path);
            if plain.climbs() {
                return Matched::Refused(Refused::NoRoute);
            }
            if self.is_another_spelling(method, found, &plain) {
                return Matched::Refused(Refused::Spelling);
            }
        }
        let allowed = route.is_some_and(|route| route.allow_overrides) || self.policies().next().is_none();
        if !allowed && is_overridden(method, headers) {
            return Matched::Refused(Refused::Override);
        }
        match route {
            Some(route) => Matched::Route(route),
            // Methods are case-sensitive (RFC 9110, section 9.1), but some upstreams ignore that:
            // `post` is an unknown method.
            None if method.is_idempotent() => Matched::PassThrough,
            None => Matched::Refused(Refused::NoRoute),
        }
    }

    /// True if the request may mean another route with keys; only an earlier one, if the found one
    /// takes the plain spelling as well.
    fn is_another_spelling(&self, method: &Method, found: Option<usize>, plain: &Plain<'_>) -> bool {
        let first = found.filter(|number| self.0[*number].path.matches_plain(plain));
        self.0.iter().enumerate().any(|(number, route)| {
            Some(number) != found
                && first.is_none_or(|first| number < first)
                && route.policy().is_some()
                && route.takes(method)
                && route.path.matches_plain(plain)
        })
    }
}

/// True if a header names another method, or another path if the method may change state.
fn is_overridden(method: &Method, headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        // CGI, WSGI, Rack and PHP take `_` for `-`.
        let name = name.as_str().replace('_', "-");
        METHOD_OVERRIDES.contains(&&*name) || !method.is_safe() && PATH_OVERRIDES.contains(&&*name)
    })
}

#[cfg(test)]
mod tests;

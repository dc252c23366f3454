//! `routes.toml`: the requests that need a key, and each route beside the others.
//!
//! The values are shared: they are in the digest that peers compare. `policy` reads what a route
//! does with keys; `across` checks each policy against the clocks.

use std::sync::Arc;

use http::Method;
use toml::de::DeValue;

use super::problems::Weight;
use super::reader::{self, Located, Problems, Section, Source};
use super::values::is_name;
use super::{policy, settings};
use crate::gateway::policy::route::{PathPattern, Policy, Protection, Route};
use crate::gateway::policy::settings::EVERY;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::Recovery;

/// A route and its place.
pub type RouteAt = Located<Route>;

const RERUN: &str = "runs a key in doubt again: make sure that its service is idempotent by the key, or refuses an \
    Onceway-Token below the greatest one that it has seen; else an effect can happen twice";
const BARE_503: &str = "takes a 503 without Retry-After for \"nothing happened\": proxies and load \
balancers answer 503 also when a connection broke after the request was sent, and then a retry runs a second time. Write \
\"503+Retry-After\" in its place if anything stands between the gateway and the service";

/// Reads the file. Errors are added to `problems`.
pub fn read(source: &Source, problems: &Problems) -> Option<Vec<RouteAt>> {
    let document = source.parse(problems)?;
    let top = Section::top(source, &document, problems);
    let sections = top.tables("route");
    if sections.is_empty() {
        top.fail(
            "no route is listed, so every POST and PATCH would be refused: write a [[route]] for each path",
        );
    }
    let mut routes: Vec<RouteAt> = Vec::new();
    for section in sections {
        let at = section.at().clone();
        let Some(route) = route(section) else { continue };
        if let Some(policy) = route.policy() {
            if policy.outcomes.classify(503, false) == Outcome::NothingHappened {
                problems.note(Weight::Advice, &at, format!("route {:?} {BARE_503}", route.name));
            }
            if matches!(policy.recovery, Recovery::Rerun { .. }) {
                problems.note(Weight::Advice, &at, format!("route {:?} {RERUN}", route.name));
            }
        }
        routes.push(Located { at, value: route });
    }
    for (index, later) in routes.iter().enumerate() {
        for earlier in &routes[..index] {
            compare(&earlier.value, later, problems);
        }
        advise_on_catch_all(&routes[..index], later, problems);
    }
    Some(routes)
}

fn route(mut section: Section<'_>) -> Option<Route> {
    let name =
        section.required("name", "name the route, such as name = \"charges\"; it stands in metrics", name);
    if let Some(name) = &name {
        section.rename(format!("route {name:?}"));
    }
    let methods = section.optional("methods", |value| reader::list(value, method)).unwrap_or_default();
    let path = section.required("path", "write the path it takes, such as path = \"/v1/charges\"", |value| {
        PathPattern::parse(&reader::text(value)?)
    });
    let advice = "say \"required\" (requests without a key are refused), \"optional\" or \"off\"";
    let words = Protection::ALL.map(|one| (one.name(), one));
    let protection = section.required("key", advice, |value| reader::word(value, &words));
    let mut every = Policy::usual();
    settings::read(&section, None, &EVERY, &mut every);
    // `across` checks that it exists.
    every.upstream = section.optional("upstream", self::name).map(Arc::from);
    let terms = match protection {
        Some(Protection::Required | Protection::Optional) => policy::read(&section, every),
        Some(Protection::Off) => {
            for key in settings::keyed().into_iter().filter(|key| section.has(key)) {
                let text = format!("{key} has no effect where key = \"off\": remove it, or handle keys");
                section.fail_at(key, text);
            }
            Some(every)
        }
        None => {
            // The intended handling is not known: all keys of a policy may be written, and none
            // must be.
            for key in settings::keyed() {
                section.has(key);
            }
            None
        }
    };
    let allow_overrides = section.flag("allow_overrides");
    let (protection, terms) = (protection?, Arc::new(terms?));
    Some(Route { name: name?.into(), methods, path: path?, protection, terms, allow_overrides })
}

fn method(value: &DeValue<'_>) -> Result<Method, String> {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let text = reader::text(value)?;
    match KNOWN.contains(&text.as_str()) {
        true => text.parse().map_err(|_| format!("{text:?} is no method")),
        false => Err(format!("{text:?} is no method: use {}", KNOWN.join(", "))),
    }
}

fn name(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    is_name(&text).map_err(|why| format!("{text:?} {why}"))?;
    Ok(text)
}

/// Reports faults of two routes together.
fn compare(earlier: &Route, Located { at, value: later }: &RouteAt, problems: &Problems) {
    let (name, before, path) = (&later.name, &earlier.name, later.path.as_str());
    if before == name {
        problems.add(at, format!("route {name:?} is listed twice: give each route a name of its own"));
    }
    let methods = earlier.methods.is_empty()
        || !later.methods.is_empty() && later.methods.iter().all(|method| earlier.methods.contains(method));
    if methods && covers(earlier.path.as_str(), path) {
        let why = format!(
            "route {name:?} is never reached: route {before:?} before it takes all of {path}; put the \
             narrower route first"
        );
        problems.add(at, why);
    }
}

/// Advises about a wide route without keys that comes after routes with keys inside its path.
fn advise_on_catch_all(before: &[RouteAt], Located { at, value: wide }: &RouteAt, problems: &Problems) {
    let changes = wide.methods.is_empty() || wide.methods.iter().any(|method| !method.is_safe());
    let (path, keyed) = (wide.path.as_str(), |route: &&RouteAt| route.value.policy().is_some());
    let inside = before.iter().filter(keyed).find(|route| covers(path, route.value.path.as_str()));
    if let (None, true, Some(inside)) = (wide.policy(), changes && path.ends_with('*'), inside) {
        let (name, keyed) = (&wide.name, &inside.value.name);
        let advice = format!(
            "route {name:?} lets all other paths under {path} pass without a key, behind route \
             {keyed:?}: so does a path that only the service takes for one of route {keyed:?}. \
             List the paths that need no key, or only methods that change nothing"
        );
        problems.note(Weight::Advice, at, advice);
    }
}

/// True if `wide` matches every path that `narrow` matches. Both are parsed patterns.
fn covers(wide: &str, narrow: &str) -> bool {
    let any = |segment: &str| segment.starts_with('{');
    let (mut wide, mut narrow) = (wide[1..].split('/'), narrow[1..].split('/'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some("*"), _) | (None, None) => return true,
            (Some(_) | None, Some("*")) | (Some(_), None) | (None, Some(_)) => return false,
            (Some(w), Some(n)) if any(w) && !n.is_empty() => {}
            (Some(w), Some(n)) if w == n => {}
            (Some(_), Some(_)) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_pattern_covers_narrower_ones_only() {
        for (wide, narrow) in [
            ("/a", "/a"),
            ("/a/{x}", "/a/b"),
            ("/a/{x}", "/a/{y}"),
            ("/a/*", "/a/b/c"),
            ("/*", "/"),
            ("/a/*", "/a/*"),
            ("/a/*", "/a/{x}/*"),
        ] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("/a", "/b"),
            ("/a/b", "/a/{x}"),
            ("/a/{x}", "/a/"),
            ("/a/{x}", "/a/*"),
            ("/a", "/a/b"),
            ("/a/b", "/a"),
            ("/a/{x}", "/a/b/c"),
        ] {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
    }
}

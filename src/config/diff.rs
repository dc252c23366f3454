//! Differences between two regions in settings that must be equal: the first such setting, and its
//! two places.
//!
//! `shared` digests the same settings, and peers compare the digest. [`super::running`] uses this
//! file for the settings of `ring.toml` that wait for a restart. Every setting is named here, so
//! that a new one needs a decision. This file must not show a value: the seed is one.

use std::path::Path;

use super::problems::At;
use super::routes::RouteAt;
use super::shared::Shared;
use crate::gateway::authority::failover::Failover;
use crate::gateway::policy::route::{Policy, Protection, Route};
use crate::protocol::outcome::Outcome;
use crate::protocol::record::Recovery;
use crate::protocol::ring::Ring;
use crate::protocol::ring_spec::RingSpec;

/// Places of the settings that all regions share.
#[derive(Debug)]
pub struct Places {
    ring: At,
    /// The whole file, then each route.
    routes: (At, Vec<At>),
}

impl Places {
    pub(super) fn of(ring: &Path, routes: &Path, all: &[RouteAt]) -> Self {
        let each = all.iter().map(|route| route.at.clone()).collect();
        Self { ring: At::file(ring), routes: (At::file(routes), each) }
    }

    fn route(&self, number: usize) -> &At {
        self.routes.1.get(number).unwrap_or(&self.routes.0)
    }
}

/// A setting that differs.
#[derive(Debug)]
pub struct Difference {
    /// Key with its tables, as in `onceway config explain`.
    pub key: String,
    pub route: Option<String>,
    /// Places of the setting in the two regions, or the places where it should be.
    pub at: [At; 2],
}

/// Finds the first setting of the ring itself, and the first of all others, in which two regions
/// differ. `None` if they are equal.
pub fn first(one: (&Shared, &Places), other: (&Shared, &Places)) -> [Option<Difference>; 2] {
    let (read, now) = (one.0, other.0);
    let of_ring_file = |key: &str| Difference {
        key: key.to_owned(),
        route: None,
        at: [one.1, other.1].map(|all| all.ring.clone()),
    };
    let ring =
        (read.ring.digest() != now.ring.digest()).then(|| of_ring_file(of_ring(&read.ring, &now.ring)));
    if read.digest == now.digest {
        return [ring, None];
    }
    let mut rest = None;
    of_ring_files(now, read, &mut |key, is| {
        if is && rest.is_none() {
            rest = Some(of_ring_file(key));
        }
    });
    [ring, rest.or_else(|| Some(of_routes(one, other)))]
}

/// The first setting in which two rings differ.
fn of_ring(one: &Ring, other: &Ring) -> &'static str {
    let (one, other) = (one.spec(), other.spec());
    let RingSpec { seed, place_by, regions, pins: _ } = &one;
    let names = |spec: &RingSpec| spec.regions.iter().map(|region| region.name.clone()).collect::<Vec<_>>();
    if *seed != other.seed {
        "seed"
    } else if *place_by != other.place_by {
        "place_by"
    } else if names(&one) != names(&other) {
        "region.name"
    } else if *regions != other.regions {
        "region.weight"
    } else {
        "pin"
    }
}

/// Calls `differs` with each setting of `ring.toml` but the ring itself, and whether it differs.
pub(super) fn of_ring_files(now: &Shared, read: &Shared, differs: &mut impl FnMut(&str, bool)) {
    let Shared { deployment, ring: _, drift, skew, heartbeat, failover, routes: _, digest: _ } = read;
    differs("deployment", *deployment != now.deployment);
    differs("clock.drift_ppm", drift.ppm != now.drift.ppm);
    differs("clock.margin", drift.margin != now.drift.margin);
    differs("clock.skew", *skew != now.skew);
    differs("heartbeat", *heartbeat != now.heartbeat);
    let Failover {
        mode,
        lease,
        max_life,
        window,
        drain_limit,
        kill_after,
        stable_for,
        min_serving,
        witnesses,
    } = failover;
    let before = &now.failover;
    differs("failover.mode", *mode != before.mode);
    differs("failover.lease", *lease != before.lease);
    differs("max_life", *max_life != before.max_life);
    differs("failover.multiple", window.percent != before.window.percent);
    differs("failover.floor", window.floor != before.window.floor);
    differs("failover.beyond", window.beyond != before.window.beyond);
    differs("failover.drain_limit", *drain_limit != before.drain_limit);
    differs("failover.kill_after", *kill_after != before.kill_after);
    differs("failover.stable_for", *stable_for != before.stable_for);
    differs("failover.min_serving", *min_serving != before.min_serving);
    differs("[[witness]]", *witnesses != before.witnesses);
}

/// The first setting in which the routes of two regions differ. Their files of routes must differ.
fn of_routes(one: (&Shared, &Places), other: (&Shared, &Places)) -> Difference {
    let (routes, others) = (&one.0.routes.0, &other.0.routes.0);
    let mut pairs = routes.iter().zip(others).enumerate();
    let differing = pairs.find_map(|(number, (route, other))| Some((number, of_route(route, other)?)));
    // A route that only one of them has.
    let (number, key) = differing.unwrap_or((routes.len().min(others.len()), "name"));
    let route = routes.get(number).or(others.get(number)).map(|route| route.name.to_string());
    let at = [one.1, other.1].map(|places| places.route(number).clone());
    Difference { key: format!("route.{key}"), route, at }
}

fn of_route(one: &Route, other: &Route) -> Option<&'static str> {
    let Route { name, methods, path, protection, allow_overrides } = one;
    if *name != other.name {
        return Some("name");
    } else if *methods != other.methods {
        return Some("methods");
    } else if path.as_str() != other.path.as_str() {
        return Some("path");
    } else if *allow_overrides != other.allow_overrides {
        return Some("allow_overrides");
    } else if one.upstream() != other.upstream() {
        return Some("upstream");
    }
    match (protection, &other.protection) {
        (Protection::Off { upstream_timeout: one, .. }, Protection::Off { upstream_timeout: other, .. }) => {
            (one != other).then_some("upstream_timeout")
        }
        (Protection::Optional(one), Protection::Optional(other))
        | (Protection::Required(one), Protection::Required(other)) => of_policy(one, other),
        _ => Some("key"),
    }
}

/// The key of the first of these fields in which two policies differ. Each field is named once,
/// those that may differ behind the semicolon.
macro_rules! first_differing {
    ($one:ident $other:ident: $($field:ident $key:expr),*; $($may:ident),*) => {{
        let Policy { $($field,)* $($may: _,)* } = $one;
        let all = [$(($key, *$field != $other.$field)),*];
        all.into_iter().find(|(_, differs)| *differs).map(|(key, _)| key)
    }};
}

fn of_policy(one: &Policy, other: &Policy) -> Option<&'static str> {
    let of_recovery = match (&one.recovery, &other.recovery) {
        (Recovery::Rerun { .. }, Recovery::Rerun { .. }) => "max_attempts",
        _ => "recovery",
    };
    let finals = |policy: &Policy| {
        let all = (200..=599).map(|status| policy.outcomes.classify(status, false) == Outcome::Final);
        all.collect::<Vec<_>>()
    };
    let of_outcomes = if finals(one) == finals(other) { "nothing_happened" } else { "final" };
    let of_key_headers = match (&one.key_headers, &other.key_headers) {
        (one, other) if one.from != other.from => "key_from",
        (one, other) if one.to.form != other.to.form => "forward_key",
        _ => "forward_key_header",
    };
    // The register says which routes are under escrow; the file only proposes.
    first_differing! { one other:
        key_headers of_key_headers, syntax "syntax", key_policy "key_policy", fingerprint "fingerprint",
        fingerprint_headers "fingerprint", mismatch "mismatch",
        dialect "dialect", recovery of_recovery, probe "probe", hold "hold", wait "wait",
        upstream_timeout "upstream_timeout", settle_time "settle_time",
        status_ends_attempt "status_ends_attempt", retention "retention", tombstone "tombstone",
        body_limit "body_limit", stored_limit "stored_limit", outcomes of_outcomes,
        mode "mode", accept "accept", keep_headers "accept.keep_headers", bind "bind",
        replay_headers "replay_headers"; escrow, upstream
    }
}

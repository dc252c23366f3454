//! Settings that must be equal in all regions, their digest over canonical JSON, and the first
//! difference between two regions. A difference shows no value: the seed is one.
//!
//! Peers compare the digest in their pings (`ports::peers`). The JSON is built from the checked
//! values: comments, the order of keys and the spelling of spans make no difference. A route's
//! settings are in it if they differ from their defaults (`settings`). The ring has its own digest
//! in the view. Nothing here is a secret, or may differ between regions.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::problems::At;
use super::ring::{RingFile, timings};
use super::routes::RouteAt;
use super::settings::{lasting, written};
use super::span::show;
use crate::gateway::authority::failover::{Failover, Mode};
use crate::gateway::credentials::Credentials;
use crate::gateway::limits::concurrency::MostAtOnce;
use crate::gateway::policy::route::{Escrow, Route, Routes};
use crate::gateway::policy::settings::settings;
use crate::gateway::reloadable::Reload;
use crate::gateway::settings::Settings;
use crate::protocol::digest::{Digest32, digest};
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;
use crate::protocol::ring_spec::RingSpec;
use crate::protocol::time::Drift;
use crate::protocol::versions::Versions;
use crate::protocol::view::View;
use crate::protocol::window::WindowRule;

/// Settings that must be equal in all regions, checked: those of `ring.toml` and `routes.toml`.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The deployment's name.
    pub deployment: String,
    /// The ring.
    pub ring: Arc<Ring>,
    /// Bounds on the error of clocks.
    pub drift: Drift,
    /// Time for which an answer is stored beyond the promise.
    pub skew: Duration,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Rules of takeovers, and the witnesses.
    pub failover: Failover,
    /// The routes.
    pub routes: Routes,
    /// Digest of all of these but the ring, which views carry.
    pub digest: Digest32,
}

impl Shared {
    /// Makes it from the two files.
    pub(super) fn of(file: RingFile, routes: Vec<RouteAt>) -> Self {
        let RingFile { deployment, pins: _, ring, drift, skew, heartbeat, failover } = file;
        let routes = Routes(routes.into_iter().map(|route| route.value).collect());
        let digest = Digest32::new([0; 32]);
        Self { deployment, ring, drift, skew, heartbeat, failover, routes, digest }.digested()
    }

    /// The same settings with other routes, and with the digest of both.
    pub(super) fn with_routes(&self, routes: Routes) -> Self {
        Self { routes, ..self.clone() }.digested()
    }

    fn digested(self) -> Self {
        let ring: Map<String, Value> =
            self.of_ring_file().map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        let routes: Vec<Value> = self.routes.0.iter().map(|route| written(route).into()).collect();
        // The keys of an object are in their order, so equal settings have one text.
        let text = json!({ "ring": ring, "routes": routes }).to_string();
        Self { digest: digest("onceway/shared/2", &[text.as_bytes()]), ..self }
    }

    /// The settings of `ring.toml` but the ring itself. A new field must be named here.
    pub(super) fn of_ring_file(&self) -> [(&'static str, Value); 16] {
        let Self { deployment, ring: _, drift, skew, heartbeat, failover, routes: _, digest: _ } = self;
        let Failover {
            mode,
            lease,
            max_life,
            window: WindowRule { percent, floor, beyond },
            drain_limit,
            kill_after,
            stable_for,
            min_serving,
            witnesses,
        } = failover;
        let span = |span: &Duration| json!(show(*span));
        let mode = match mode {
            Mode::Automatic => "automatic",
            Mode::Manual => "manual",
        };
        [
            ("deployment", json!(deployment)),
            ("clock.drift_ppm", json!(drift.ppm)),
            ("clock.margin", span(&drift.margin)),
            ("clock.skew", span(skew)),
            ("heartbeat", span(heartbeat)),
            ("failover.mode", json!(mode)),
            ("failover.lease", span(lease)),
            ("max_life", max_life.map(lasting).into()),
            ("failover.multiple", json!(percent)),
            ("failover.floor", span(floor)),
            ("failover.beyond", span(beyond)),
            ("failover.drain_limit", span(drain_limit)),
            ("failover.kill_after", span(kill_after)),
            ("failover.stable_for", span(stable_for)),
            ("failover.min_serving", json!(min_serving)),
            ("[[witness]]", witnesses.iter().map(RegionName::as_str).collect()),
        ]
    }

    /// Settings of a region's gateway whose region file says nothing more.
    pub fn settings(&self, me: RegionName, generation: u32, credentials: Arc<Credentials>) -> Settings {
        let (routes, shared, most_at_once) = (self.routes.clone(), self.digest, MostAtOnce::default());
        Settings {
            me,
            generation,
            live: Reload { routes, credentials, quota: None, most_at_once, shared, restart: Vec::new() },
            drift: self.drift,
            skew: self.skew,
            seals_requests: false,
            timings: timings(self.heartbeat),
            shadow: false,
            failover: self.failover.clone(),
            upstream_health: None,
            speaks: Versions::OURS,
        }
    }

    /// The routes that propose escrow. The register says which have it.
    pub fn escrow(&self) -> BTreeSet<Arc<str>> {
        let lodged = |route: &&Route| route.policy().is_some_and(|policy| policy.escrow != Escrow::Off);
        self.routes.0.iter().filter(lodged).map(|route| route.name.clone()).collect()
    }

    /// The view of a gateway before it has read its region's gate.
    pub fn view(&self) -> View {
        View::unfounded(self.ring.clone())
    }
}

/// Places of the settings that all regions share.
#[derive(Debug)]
pub struct Places {
    ring: At,
    /// The whole file, then each route.
    routes: Vec<At>,
}

impl Places {
    pub(super) fn of(ring: &Path, routes: &Path, all: &[RouteAt]) -> Self {
        let each = all.iter().map(|route| route.at.clone());
        Self { ring: At::file(ring), routes: std::iter::once(At::file(routes)).chain(each).collect() }
    }

    fn route(&self, number: usize) -> &At {
        self.routes.get(number + 1).unwrap_or(&self.routes[0])
    }
}

/// A setting that differs.
#[derive(Debug)]
pub struct Difference {
    /// Key with its tables, as in `onceway config explain`.
    pub key: String,
    /// Name of its route; `None` if it is of no route.
    pub route: Option<String>,
    /// Places of the setting in the two regions, or the places where it should be.
    pub at: [At; 2],
}

/// Finds the first differing setting of the ring itself, and the first of all others.
pub fn first_difference(one: (&Shared, &Places), other: (&Shared, &Places)) -> [Option<Difference>; 2] {
    let differing = |settings: &[(&str, Value)], others: &[(&str, Value)]| {
        let (key, _) = settings.iter().zip(others).find(|(one, other)| one != other)?.0;
        Some(Difference {
            key: (*key).to_owned(),
            route: None,
            at: [one.1, other.1].map(|all| all.ring.clone()),
        })
    };
    let ring = differing(&of_ring(&one.0.ring), &of_ring(&other.0.ring));
    let rest = differing(&one.0.of_ring_file(), &other.0.of_ring_file());
    [ring, rest.or_else(|| of_routes(one, other))]
}

fn of_ring(ring: &Ring) -> [(&'static str, Value); 5] {
    let RingSpec { seed, place_by, regions, pins } = ring.spec();
    let names = regions.iter().map(|region| region.name.as_str()).collect();
    [
        ("seed", json!(seed)),
        ("place_by", json!(place_by)),
        ("region.name", names),
        ("region.weight", json!(regions)),
        ("pin", json!(pins)),
    ]
}

/// The first setting in which the routes of two regions differ.
fn of_routes(one: (&Shared, &Places), other: (&Shared, &Places)) -> Option<Difference> {
    let (routes, others) = (&one.0.routes.0, &other.0.routes.0);
    let mut pairs = routes.iter().zip(others).enumerate();
    let differing = pairs.find_map(|(number, (route, other))| {
        let (route, other) = (written(route), written(other));
        let key = settings().map(|setting| setting.key).find(|key| route.get(*key) != other.get(*key))?;
        Some((number, key))
    });
    // A route that only one of them has.
    let only = (routes.len() != others.len()).then(|| (routes.len().min(others.len()), "name"));
    let (number, key) = differing.or(only)?;
    let route = routes.get(number).or(others.get(number)).map(|route| route.name.to_string());
    let at = [one.1, other.1].map(|places| places.route(number).clone());
    Some(Difference { key: format!("route.{key}"), route, at })
}

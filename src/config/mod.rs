//! Configuration: TOML files become checked values, and all their errors are reported at once.
//!
//! | file | who shares it | read by |
//! |---|---|---|
//! | `ring.toml` | all regions | [`ring`] |
//! | `routes.toml` | all regions | [`routes`] |
//! | region file, such as `us-east.toml` | one process | [`region`] |
//! | `witness.toml` | one witness | [`witness`] |
//! | `credentials.toml` and the key files it names | all regions, as a rule | [`credentials`] |
//! | `operators.toml` | all regions, as a rule | [`admin`] |
//!
//! Rules across files are in `across`. The lower rooms define the values ([`Settings`], `Policy`,
//! `Ring`). This room opens no port and no connection, and shows no secret.

mod across;
pub(crate) mod admin;
mod credentials;
pub mod listen;
mod plain;
mod policy;
mod problems;
pub(crate) mod provision;
pub mod reader;
pub mod reference;
pub(crate) mod region;
pub(crate) mod ring;
pub(crate) mod routes;
mod running;
pub mod secret;
pub mod settings;
pub mod shared;
pub(crate) mod span;
pub mod trusted;
pub(crate) mod upstreams;
pub(crate) mod values;
pub mod witness;

use std::path::Path;
use std::sync::Arc;

use crate::gateway::credentials::Credentials;
use crate::gateway::policy::route::{Binding, Route, Routes};
use crate::gateway::reloadable::Reload;
use crate::gateway::settings::Settings;
use crate::protocol::region::RegionName;

pub use problems::{Checked, Errors, Watched};
use problems::{Environment, Need, Surroundings, checked, judged};
use reader::{Problems, Source, named};
use region::Process;
use ring::RingFile;
use routes::RouteAt;
use shared::{Places, Shared};

/// All checked settings of one gateway process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The region in which it serves.
    pub me: RegionName,
    /// Settings that are equal in all regions.
    pub shared: Shared,
    /// The callers.
    pub credentials: Arc<Credentials>,
    /// The settings of this process.
    pub process: Process,
}

impl Config {
    /// Like [`Config::load_watched`], for commands that ask a running gateway or make its store: the
    /// store's address and the key that seals requests are empty.
    pub fn load_for_command(region_file: &Path) -> Result<Self, Errors> {
        Self::watched(region_file, &|name| std::env::var(name).ok(), Need::Command).0
    }

    /// Reads a region file and the files that it names, and checks everything. Also returns the
    /// files that were looked at and their state, even after errors. Blocks: some files.
    pub fn load_watched(region_file: &Path) -> (Result<Self, Errors>, Watched) {
        Self::watched(region_file, &|name| std::env::var(name).ok(), Need::Serve)
    }

    /// Like [`Config::load_watched`], with another environment.
    pub fn load_with(region_file: &Path, environment: Environment<'_>) -> Result<Self, Errors> {
        Self::watched(region_file, environment, Need::Serve).0
    }

    fn watched(file: &Path, environment: Environment<'_>, need: Need) -> (Result<Self, Errors>, Watched) {
        judged(named(file, |source, problems| {
            Some(read(source, Surroundings { environment, need }, problems)?.0)
        }))
    }

    /// Settings for the gateway.
    pub fn settings(&self) -> Settings {
        let Process { store, accept_key, quota, shadow, upstream, listen, .. } = &self.process;
        let all = self.shared.settings(self.me.clone(), store.generation, self.credentials.clone());
        Settings {
            seals_requests: accept_key.is_some(),
            live: Reload { quota: *quota, most_at_once: listen.at_once, ..all.live },
            shadow: *shadow,
            upstream_health: upstream.health.clone(),
            ..all
        }
    }
}

/// Reads these two files: the settings that are equal for all gateways of a deployment. The errors
/// are all problems of both.
pub fn load_shared(ring: &Source, routes: &Source) -> Result<Shared, Errors> {
    let read = |problems: &Problems| {
        let (ring, routes) = (ring::read(ring, problems), routes::read(routes, problems));
        together(ring, routes, problems)
    };
    judged(read).0
}

/// Reads a ring file alone. The errors are all its problems.
pub fn load_ring(path: &Path) -> Result<RingFile, Errors> {
    judged(named(path, ring::read)).0
}

/// Reads a file of routes alone. Its holds are checked with the default clocks. The errors are all
/// its problems.
pub fn load_routes(path: &Path) -> Result<Routes, Errors> {
    judged(named(path, routes_alone)).0
}

fn routes_alone(source: &Source, problems: &Problems) -> Option<Routes> {
    let routes = routes::read(source, problems)?;
    across::routes_fit(&routes, ring::DRIFT, &ring::timings(ring::HEARTBEAT), problems);
    Some(Routes(routes.into_iter().map(|route| route.value).collect()))
}

/// Reads a file of credentials alone. The errors are all its problems.
pub fn load_credentials(path: &Path) -> Result<Credentials, Errors> {
    judged(named(path, credentials_alone)).0
}

fn credentials_alone(source: &Source, problems: &Problems) -> Option<Credentials> {
    credentials::read(source, false, problems)
}

/// The region of a file, and the settings that it shares with other regions.
#[derive(Debug)]
pub struct Regional {
    /// The region.
    pub me: RegionName,
    /// Settings that are equal in all regions.
    pub shared: Shared,
    /// Places of those settings.
    pub places: Places,
    /// True if it names a collector of spans.
    pub exports_spans: bool,
}

/// Checks a ring file alone.
pub fn check_ring(path: &Path) -> Checked<RingFile> {
    checked(named(path, ring::read))
}

/// Checks a file of routes alone.
pub fn check_routes(path: &Path) -> Checked<Routes> {
    checked(named(path, routes_alone))
}

/// Checks a file of credentials alone.
pub fn check_credentials(path: &Path) -> Checked<Credentials> {
    checked(named(path, credentials_alone))
}

/// Checks a file of operators alone. Its value is the number of their tokens.
pub fn check_operators(path: &Path) -> Checked<usize> {
    checked(named(path, |source, problems| admin::named(source, problems).map(|named| named.len())))
}

/// Checks a region file, and everything that it names as far as `need` goes.
///
/// No process can serve by the result: secrets may be missing.
pub fn check_region(region_file: &Path, environment: Environment<'_>, need: Need) -> Checked<Regional> {
    checked(named(region_file, |source, problems| {
        let (config, places) = read(source, Surroundings { environment, need }, problems)?;
        let exports_spans = config.process.otlp.is_some();
        Some(Regional { me: config.me, shared: config.shared, places, exports_spans })
    }))
}

/// Checks a witness file and the ring that it names. Its value is the witness's name.
pub fn check_witness(file: &Path, environment: Environment<'_>) -> Checked<RegionName> {
    let surroundings = Surroundings { environment, need: Need::All };
    checked(named(file, |source, problems| Some(witness::read(source, surroundings, problems)?.name)))
}

fn read(source: &Source, surroundings: Surroundings<'_>, problems: &Problems) -> Option<(Config, Places)> {
    let file = region::read(source, surroundings, problems)?;
    let ring = file.ring.as_ref().and_then(|file| Source::read_by(file, problems, ring::read));
    let routes = file.routes.as_ref().and_then(|file| Source::read_by(file, problems, routes::read));
    let paths = file.ring.as_ref().zip(file.routes.as_ref());
    let places =
        paths.zip(routes.as_deref()).map(|((ring, routes), all)| Places::of(&ring.value, &routes.value, all));
    let binding = routes.as_deref().and_then(|routes| routes.iter().find(|route| binds(&route.value)));
    if let (Some(routes), Some(process)) = (&routes, &file.process) {
        across::front_names_principals(binding, &process.listen, problems);
        across::bodies_fit(routes, &process.listen, problems);
    }
    let callers =
        |source: &Source, problems: &Problems| credentials::read(source, binding.is_some(), problems);
    let credentials = file.credentials.and_then(|file| Source::read_by(&file, problems, callers));
    if let (Some(ring), Some(me)) = (&ring, &file.region) {
        across::region_in_ring(me, &file.others, ring, problems);
        let routes = routes.as_deref().unwrap_or_default();
        across::probes_reach(&me.value, &file.others, &ring.ring, routes, problems);
        across::upstreams_exist(&file.others, &ring.ring, routes, problems);
    }
    let shared = together(ring, routes, problems)?;
    let (me, credentials, process) = (file.region?.value, Arc::new(credentials?), file.process?);
    Some((Config { me, shared, credentials, process }, places?))
}

/// Checks the two files that all regions share against each other.
fn together(ring: Option<RingFile>, routes: Option<Vec<RouteAt>>, problems: &Problems) -> Option<Shared> {
    let (ring, routes) = (ring?, routes?);
    across::routes_fit(&routes, ring.drift, &ring::timings(ring.heartbeat), problems);
    across::lives_fit(&routes, ring.failover.max_life, problems);
    across::outlives_an_outage(&routes, &ring.ring, &ring.failover, problems);
    across::escrow_has_a_holder(&routes, &ring.ring, problems);
    Some(Shared::of(ring, routes))
}

fn binds(route: &Route) -> bool {
    route.policy().is_some_and(|policy| policy.bind == Binding::Principal)
}

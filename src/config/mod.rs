//! Configuration: TOML files become checked values, and all their errors are reported at once.
//!
//! | file | who shares it | read by |
//! |---|---|---|
//! | `ring.toml` | all regions | [`ring`], `failover` |
//! | `routes.toml` | all regions | [`routes`] |
//! | region file, such as `us-east.toml` | one process | [`region`] |
//! | `witness.toml` | one witness | [`witness`] |
//! | `credentials.toml` and the key files it names | all regions, as a rule | [`credentials`] |
//! | `operators.toml` | all regions, as a rule | [`admin`] |
//!
//! Rules across files are in `across`. The lower rooms define the values ([`Settings`], `Policy`,
//! `Ring`). This room must not open a port or a connection, and must not show a secret.

mod accept;
mod across;
pub mod admin;
mod by_region;
mod certificates;
mod credentials;
pub(crate) mod diff;
mod failover;
mod jwks;
pub(crate) mod levels;
pub mod listen;
mod nearest;
mod outcomes;
mod policy;
mod problems;
pub(crate) mod provision;
mod published;
mod quota;
pub mod reader;
pub mod reference;
pub(crate) mod region;
pub(crate) mod ring;
pub(crate) mod routes;
pub mod running;
pub mod secret;
pub mod settings;
pub mod shared;
pub(crate) mod span;
mod stamp;
mod timings;
pub mod trusted;
mod upstream_health;
pub mod upstreams;
mod values;
pub mod witness;

use std::path::Path;
use std::sync::Arc;

use crate::gateway::credentials::Credentials;
use crate::gateway::policy::route::{Binding, Protection, Route, Routes};
use crate::gateway::reloadable::Reload;
use crate::gateway::settings::Settings;
use crate::protocol::region::RegionName;

use credentials::CredentialsFile;
use diff::Places;
pub use problems::Errors;
use problems::Found;
use problems::judged;
use reader::{At, Problem, Problems, Source};
use region::Process;
use ring::RingFile;
use routes::RouteAt;
use secret::{Environment, Need, Surroundings};
use shared::Shared;
pub use stamp::Watched;

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
    /// Reads a region file and the files that it names, and checks everything.
    ///
    /// Secrets that the file names by variables come from the environment. Blocks: some files.
    ///
    /// # Errors
    /// All problems of all files.
    pub fn load(region_file: &Path) -> Result<Self, Errors> {
        Self::load_with(region_file, &|name| std::env::var(name).ok())
    }

    /// Like [`Config::load`], for commands that ask a running gateway or make its store.
    ///
    /// The store's address and the key that seals requests are not looked up, and are empty.
    ///
    /// # Errors
    /// All problems of all files.
    pub fn load_for_command(region_file: &Path) -> Result<Self, Errors> {
        let environment = |name: &str| std::env::var(name).ok();
        let surroundings = Surroundings { environment: &environment, need: Need::Command };
        alone(|problems| read(region_file, &surroundings, problems))
    }

    /// Like [`Config::load`]. Also returns the files that were looked at, with their state then,
    /// even after errors.
    pub fn load_watched(region_file: &Path) -> (Result<Self, Errors>, Watched) {
        let environment = |name: &str| std::env::var(name).ok();
        let problems = Problems::default();
        let config =
            read(region_file, &Surroundings { environment: &environment, need: Need::Serve }, &problems);
        let watched = problems.looked_at();
        (judged(config, problems), watched)
    }

    /// Like [`Config::load`], with another environment.
    ///
    /// # Errors
    /// All problems of all files.
    pub fn load_with(region_file: &Path, environment: Environment<'_>) -> Result<Self, Errors> {
        alone(|problems| read(region_file, &Surroundings { environment, need: Need::Serve }, problems))
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

/// Reads these two files: the settings that are equal for all gateways of a deployment.
///
/// # Errors
/// All problems of both.
pub fn load_shared(ring: &Source, routes: &Source) -> Result<Shared, Errors> {
    alone(|problems| {
        let (ring, routes) = (ring::read_text(ring, problems), routes::read_text(routes, problems));
        together(ring, routes, problems)
    })
}

/// Reads a ring file alone.
///
/// # Errors
/// All its problems.
pub fn load_ring(path: &Path) -> Result<RingFile, Errors> {
    alone(|problems| ring::read(path, &At::file(path), problems))
}

/// Reads a file of routes alone. Its holds are checked with the default clocks: the ring's are not
/// known.
///
/// # Errors
/// All its problems.
pub fn load_routes(path: &Path) -> Result<Routes, Errors> {
    alone(|problems| routes_alone(path, problems))
}

fn routes_alone(path: &Path, problems: &Problems) -> Option<Routes> {
    let routes = routes::read(path, &At::file(path), problems)?;
    across::routes_fit(&routes, ring::DRIFT, &timings::timings(ring::HEARTBEAT), problems);
    Some(Routes(routes.into_iter().map(|route| route.value).collect()))
}

/// Reads a file of credentials alone.
///
/// # Errors
/// All its problems.
pub fn load_credentials(path: &Path) -> Result<Credentials, Errors> {
    alone(|problems| CredentialsFile::new(path, false).read(&At::file(path), problems))
}

/// Result of a check of a file.
#[derive(Debug)]
pub struct Checked<T> {
    /// Value of the file, if it has no errors.
    pub value: Option<T>,
    /// Errors of the file.
    pub wrong: Vec<Problem>,
    /// Secrets and files that it names and that are not on this machine, and values that everybody
    /// knows.
    pub missing: Vec<Problem>,
    /// Valid settings with an effect that their author may not expect.
    pub advice: Vec<Problem>,
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
    checked(|problems| ring::read(path, &At::file(path), problems))
}

/// Checks a file of routes alone.
pub fn check_routes(path: &Path) -> Checked<Routes> {
    checked(|problems| routes_alone(path, problems))
}

/// Checks a file of credentials alone.
pub fn check_credentials(path: &Path) -> Checked<Credentials> {
    checked(|problems| CredentialsFile::new(path, false).read(&At::file(path), problems))
}

/// Checks a file of operators alone. Its value is the number of their tokens.
pub fn check_operators(path: &Path) -> Checked<usize> {
    checked(|problems| admin::read_operators(path, problems))
}

/// Checks a region file and the files that it names, and looks for everything that they name, as
/// far as `need` goes.
///
/// No process can serve by the result: secrets may be missing.
pub fn check_region(region_file: &Path, environment: Environment<'_>, need: Need) -> Checked<Regional> {
    let regional = |problems: &Problems| {
        let (config, places) = read_placed(region_file, &Surroundings { environment, need }, problems)?;
        let exports_spans = config.process.otlp.is_some();
        Some(Regional { me: config.me, shared: config.shared, places, exports_spans })
    };
    checked(regional)
}

/// Checks a witness file and the ring that it names. Its value is the witness's name.
pub fn check_witness(file: &Path, environment: Environment<'_>) -> Checked<RegionName> {
    checked(|problems| {
        witness::read(file, &Surroundings { environment, need: Need::All }, problems)
            .map(|witness| witness.name)
    })
}

fn checked<T>(read: impl FnOnce(&Problems) -> Option<T>) -> Checked<T> {
    let problems = Problems::default();
    let value = read(&problems);
    let Found { wrong, missing, advice } = problems.into_found();
    Checked { value: value.filter(|_| wrong.is_empty()), wrong, missing, advice }
}

fn alone<T>(read: impl FnOnce(&Problems) -> Option<T>) -> Result<T, Errors> {
    let problems = Problems::default();
    let value = read(&problems);
    judged(value, problems)
}

fn read(region_file: &Path, surroundings: &Surroundings<'_>, problems: &Problems) -> Option<Config> {
    read_placed(region_file, surroundings, problems).map(|(config, _)| config)
}

fn read_placed(
    region_file: &Path,
    surroundings: &Surroundings<'_>,
    problems: &Problems,
) -> Option<(Config, Places)> {
    let file = region::read(region_file, surroundings, problems)?;
    let ring = file.ring.as_ref().and_then(|ring| ring::read(&ring.value, &ring.at, problems));
    let routes = file.routes.as_ref().and_then(|routes| routes::read(&routes.value, &routes.at, problems));
    let places = |routes: &[RouteAt]| {
        Some(Places::of(&file.ring.as_ref()?.value, &file.routes.as_ref()?.value, routes))
    };
    let places = routes.as_deref().and_then(places);
    let binding = routes.as_deref().and_then(|routes| routes.iter().find(|route| binds(&route.value)));
    if let (Some(route), Some(process)) = (binding, &file.process) {
        across::front_names_principals(route, &process.listen, problems);
    }
    if let (Some(routes), Some(process)) = (&routes, &file.process) {
        across::bodies_fit(routes, &process.listen, problems);
    }
    let credentials = file
        .credentials
        .and_then(|named| CredentialsFile::new(&named.value, binding.is_some()).read(&named.at, problems));
    if let (Some(ring), Some(me)) = (&ring, &file.region) {
        across::region_in_ring(me, &file.others, ring, problems);
    }
    if let (Some(ring), Some(me), Some(routes)) = (&ring, &file.region, &routes) {
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
    across::routes_fit(&routes, ring.drift, &timings::timings(ring.heartbeat), problems);
    across::lives_fit(&routes, ring.failover.max_life, problems);
    across::outlives_an_outage(&routes, &ring.ring, &ring.failover, problems);
    across::escrow_has_a_holder(&routes, &ring.ring, problems);
    Some(Shared::of(ring, routes))
}

/// True if the route binds its keys to the principal.
fn binds(route: &Route) -> bool {
    match &route.protection {
        Protection::Required(policy) | Protection::Optional(policy) => policy.bind == Binding::Principal,
        Protection::Off { .. } => false,
    }
}

//! A scenario: settings of a simulated deployment, its clients and its faults. Read from TOML; all
//! problems are reported at once.
//!
//! Placement, failover and routes come from the very files that gateways read (`onceway::config`).

pub(crate) mod directed;
pub(crate) mod fault;
pub mod find;
pub mod kept;
pub(crate) mod known;
pub(crate) mod vary;
pub(crate) mod workload;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onceway::config::reader::{self, At, Problem, Problems, Section, Source};
use onceway::config::shared::Shared;
use onceway::config::{self, Errors};
use onceway::protocol::region::RegionName;
use onceway::protocol::ring::Ring;
use onceway::protocol::ring_spec::{RegionSpec, RingSpec};

use fault::{Fault, Kind, Swarm};
use known::{Known, span};
use vary::Setting;
use workload::Workload;

use crate::outcome::HAPPENINGS;

/// A checked scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: String,
    pub(crate) title: String,
    /// The gateways' shared settings: the ring file and the routes file together.
    pub(crate) shared: Shared,
    /// For so long clients ask and faults happen. Then all is mended, and all keys must end.
    pub(crate) length: Duration,
    pub(crate) network: Network,
    /// The duration of a statement at a region's own store, there and back.
    pub(crate) statement: Duration,
    /// The behaviour of the protected services while no fault affects them.
    pub(crate) upstream: Upstream,
    pub(crate) operator: Operator,
    pub workloads: Vec<Arc<Workload>>,
    /// The timeline of faults.
    pub faults: Vec<Fault>,
    pub(crate) swarm: Option<Swarm>,
    /// The happenings that a batch must have seen. Without them it shows nothing.
    pub(crate) expects: Expects,
    /// The time beyond a lease for which a home region's keys may be refused at most; `None`: any.
    pub refused_beyond_lease: Option<Duration>,
    doubled: Doubled,
}

/// The ring with one region's weight doubled, for each region whose weight can be.
type Doubled = OnceLock<BTreeMap<RegionName, Arc<Ring>>>;

impl Scenario {
    /// The ring in which a region has twice its weight; `None` if that is too great. Built once for
    /// all seeds: a ring takes ten milliseconds, a whole seed not much more than a hundred.
    pub fn doubled(&self, region: &RegionName) -> Option<&Arc<Ring>> {
        let of = |one: &RegionSpec| {
            let RingSpec { seed, place_by, mut regions, pins } = self.shared.ring.spec();
            for spec in regions.iter_mut().filter(|spec| spec.name == one.name) {
                spec.weight = (spec.weight * 2).max(1);
            }
            let ring = Ring::build(&RingSpec { seed, place_by, regions, pins }).ok()?;
            Some((one.name.clone(), Arc::new(ring)))
        };
        self.doubled.get_or_init(|| self.shared.ring.regions().iter().filter_map(of).collect()).get(region)
    }
}

/// The distances between regions.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// The round trip between two regions without a link of their own.
    pub(crate) round_trip: Duration,
    /// The time that a commit takes to a subscriber beyond half a round trip.
    pub(crate) replication: Duration,
    /// Pairs with a round trip of their own.
    pub(crate) links: Vec<(RegionName, RegionName, Duration)>,
}

impl Network {
    pub(crate) fn one_way(&self, one: &RegionName, other: &RegionName) -> Duration {
        let is = |(a, b, _): &&(RegionName, RegionName, Duration)| {
            (a, b) == (one, other) || (a, b) == (other, one)
        };
        self.links.iter().find(is).map_or(self.round_trip, |(_, _, round_trip)| *round_trip) / 2
    }
}

/// The behaviour of a protected service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upstream {
    pub(crate) answers_after: Duration,
    /// One service for all regions, not one each: any region's status address knows all attempts.
    pub(crate) one_for_all: bool,
}

/// The waiting times of the operator: for so long gateways have to ask for an operator's act.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    /// Accepting the risk of a loss, if keys wait for nothing else.
    pub(crate) accepts_risk_after: Duration,
    /// Going on without a majority, if no region runs keys.
    pub(crate) breaks_glass_after: Duration,
}

/// Happenings that must have occurred, and kinds of faults that must have mattered.
#[derive(Clone, Debug)]
pub(crate) struct Expects {
    pub(crate) names: Vec<String>,
    /// The least number of seeds. A smaller batch need not have seen them.
    pub(crate) of: u64,
}

/// The scenario of this name, unchanged, or why there is none. Blocks as [`load`] does.
pub fn as_it_is(name: &str) -> Result<Arc<Scenario>, String> {
    let path = find::find(name)?;
    load(&path, &[]).map(Arc::new).map_err(|errors| errors.to_string())
}

/// Reads a scenario and the two files that it names, with these settings changed, or all problems.
/// Blocks: reads three files, and takes some milliseconds for the ring.
pub fn load(path: &Path, settings: &[Setting]) -> Result<Scenario, Errors> {
    let problems = Problems::default();
    match find::read(path, &At::file(path), &problems) {
        Some(source) => of(source, path, settings, problems),
        None => Err(Errors(problems.into_sorted())),
    }
}

/// Like [`load`], for a text at this path.
pub fn of(
    mut source: Source,
    path: &Path,
    settings: &[Setting],
    problems: Problems,
) -> Result<Scenario, Errors> {
    vary::apply(&mut source, vary::Of::Scenario, settings, &problems);
    let scenario = source.parse(&problems).and_then(|document| {
        let top = Section::top(&source, &document, &problems);
        let shared = shared(&top, path, settings, &problems);
        let scenario = read(&top, path, shared);
        top.finish();
        scenario
    });
    match (scenario, problems.into_sorted()) {
        (Some(scenario), none) if none.is_empty() => Ok(scenario),
        (_, some) => Err(Errors(some)),
    }
}

/// Reads the two files that all gateways share.
fn shared(top: &Section<'_>, path: &Path, settings: &[Setting], problems: &Problems) -> Option<Shared> {
    let beside = |file: String| path.parent().unwrap_or(Path::new("")).join(file);
    let source = |key, advice: &str, of| {
        let named = top.required_located(key, advice, reader::text)?;
        let mut source = find::read(&beside(named.value), &named.at, problems)?;
        vary::apply(&mut source, of, settings, problems);
        Some(source)
    };
    let [say_ring, say_routes] = [("ring", "three"), ("routes", "routes")].map(|(key, file)| {
        format!("name the {key} file, such as {key} = \"rings/{file}.toml\"; yours will do")
    });
    let ring = source("ring", &say_ring, vary::Of::Ring);
    let routes = source("routes", &say_routes, vary::Of::Routes);
    match config::load_shared(&ring?, &routes?) {
        Ok(shared) => Some(shared),
        Err(Errors(found)) => {
            for Problem { file, line, key, text } in found {
                problems.add(&At { file: file.into(), line, key }, text);
            }
            None
        }
    }
}

fn read(top: &Section<'_>, path: &Path, shared: Option<Shared>) -> Option<Scenario> {
    let title = top.required("title", "say in a line what this shows", reader::text);
    let known = Known(shared.as_ref());
    let length = span(top, "length", 1_000, 86_400, 60_000);
    let network = network(top, &known);
    // Read, and so checked, but nothing goes by it.
    in_table(top, "clocks", |section| {
        span_in(section, "skew", 3_600, 200);
        section.and_then(|section| {
            section.optional("drift_ppm", |value| reader::number::<u32>(value, 0, 500_000))
        });
    });
    let statement = in_table(top, "store", |section| span_in(section, "statement", 10, 2));
    let upstream = in_table(top, "upstream", |section| Upstream {
        answers_after: span_in(section, "answers_after", 60, 50),
        one_for_all: section
            .and_then(|section| section.optional("one_for_all", reader::flag))
            .unwrap_or(true),
    });
    let operator = in_table(top, "operator", |section| Operator {
        accepts_risk_after: span_in(section, "accepts_risk_after", 86_400, 60_000),
        breaks_glass_after: span_in(section, "breaks_glass_after", 86_400, 60_000),
    });
    let workloads = workload::read(top, &known);
    let (faults, swarm) = fault::read(top, &known, length);
    let expects = expects(top);
    let refused_beyond_lease = top.optional("refused_beyond_lease", |value| {
        reader::time(value, Duration::ZERO, Duration::from_secs(86_400))
    });
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let (title, shared) = (title?, shared?);
    Some(Scenario {
        name,
        title,
        shared,
        length,
        network,
        statement,
        upstream,
        operator,
        workloads,
        faults,
        swarm,
        expects,
        refused_beyond_lease,
        doubled: Doubled::new(),
    })
}

/// Reads a table that may be left out.
fn in_table<T>(top: &Section<'_>, name: &'static str, read: impl FnOnce(Option<&Section<'_>>) -> T) -> T {
    let section = top.table(name);
    let answer = read(section.as_ref());
    section.into_iter().for_each(Section::finish);
    answer
}

/// Reads a span of at most so many seconds; the default is in milliseconds.
fn span_in(section: Option<&Section<'_>>, key: &'static str, most_s: u64, default_ms: u64) -> Duration {
    let default = Duration::from_millis(default_ms);
    section.map_or(default, |section| span(section, key, 0, most_s, default_ms))
}

fn network(top: &Section<'_>, known: &Known<'_>) -> Network {
    let (round_trip, replication) = in_table(top, "network", |section| {
        (span_in(section, "round_trip", 60, 60), span_in(section, "replication", 60, 10))
    });
    let mut links = Vec::new();
    for section in top.tables("link") {
        let advice = "name both ends, such as regions = [\"us-east\", \"eu-west\"]";
        let ends = section.required("regions", advice, |value| {
            let names = reader::list(value, |value| known.region(value))?;
            fault::two_of(names).ok_or_else(|| "must be two different regions".to_owned())
        });
        let round_trip = section.required("round_trip", "such as round_trip = \"180ms\"", |value| {
            reader::time(value, Duration::ZERO, Duration::from_secs(60))
        });
        section.finish();
        if let (Some((one, other)), Some(round_trip)) = (ends, round_trip) {
            links.push((one, other, round_trip));
        }
    }
    Network { round_trip, replication, links }
}

fn expects(top: &Section<'_>) -> Expects {
    let kinds = Kind::all().into_iter().map(Kind::name);
    let words: Vec<(&str, &str)> = HAPPENINGS.iter().copied().chain(kinds).map(|name| (name, name)).collect();
    let names = top.optional("expects", |value| reader::list(value, |value| reader::word(value, &words)));
    let of = top.optional("expects_of", |value| reader::number(value, 1, 1_000_000)).unwrap_or(1);
    Expects { names: names.unwrap_or_default().into_iter().map(str::to_owned).collect(), of }
}

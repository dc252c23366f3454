//! Measures how much faster than real time a simulated deployment runs.
//!
//! `cargo bench -p simulation --bench speed -- [MINUTES [RATE]]` plays three regions for so many
//! simulated minutes (10) on one thread. The runs are: idle; with RATE requests a second (5); the
//! same with the invariants checked at each step; and the same with a region cut off in each
//! minute.
//! `tests/suites/takeover/settings.rs` has the gateways' settings. It must not assert a speed: a
//! busy machine would make it lie.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

#[path = "../tests/suites/takeover/settings.rs"]
mod settings;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Request;
use onceway::gateway::Gateway;
use onceway::ports::body;
use onceway::protocol::region::RegionName;
use onceway::protocol::ring::{PlaceBy, RegionSpec, Ring, RingSpec};
use onceway::protocol::view::View;
use settings::{LIFE, ROUTES, failover, ms, settings};
use simulation::checker::Checker;
use simulation::dice::SimDice;
use simulation::peers::LinkMode;
use simulation::ports::SimPorts;
use simulation::upstream::UpstreamMode;
use simulation::world::World;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};

const SEED: u64 = 7;
const ONE_WAY: Duration = ms(20);
/// The time between two checks of the invariants, and the precision of requests in time.
const STEP: Duration = ms(50);
/// The time for which a region is cut off in each simulated minute.
const CUT: Duration = ms(15_000);

/// A run's name and settings.
#[derive(Clone, Copy)]
struct Run {
    name: &'static str,
    rate: u64,
    checked: bool,
    cuts: bool,
}

struct Deployment {
    world: World,
    names: Vec<RegionName>,
    gateways: Vec<Arc<Gateway<SimPorts>>>,
}

/// Built once: every seed of a scenario has the same.
fn ring(names: &[RegionName]) -> Arc<Ring> {
    static RING: OnceLock<Arc<Ring>> = OnceLock::new();
    let build = || {
        let regions = names.iter().map(|name| RegionSpec { name: name.clone(), weight: 100 }).collect();
        let spec = RingSpec { seed: SEED, place_by: PlaceBy::Key, regions, pins: Vec::new() };
        Arc::new(Ring::build(&spec).unwrap())
    };
    RING.get_or_init(build).clone()
}

impl Deployment {
    fn start() -> Self {
        let names: Vec<_> = ["a-west", "b-mid", "c-east"].map(|name| RegionName::parse(name).unwrap()).into();
        let world = World::new(SEED, &names, false);
        for from in &names {
            world.cluster.set_latency(from, ms(2));
            world.upstreams.set_mode(from, UpstreamMode::Receipt { after: ms(50) });
            for to in names.iter().filter(|to| *to != from) {
                world.network.set_link(from, to, LinkMode::Up, ONE_WAY);
                world.cluster.set_delay(from, to, ms(40));
            }
        }
        let ring = ring(&names);
        let escrowed: BTreeSet<_> = ROUTES
            .iter()
            .filter(|(name, _)| name.starts_with("strict"))
            .map(|(name, _)| Arc::from(*name))
            .collect();
        let routes = settings(&names[0], failover(), LIFE).routes;
        world.found(ring.clone(), escrowed, &routes);
        let begin = |name: &RegionName| {
            let ports = world.ports(name);
            let process = ports.process().clone();
            let told = settings(name, failover(), LIFE);
            let gateway = Gateway::new(ports, told, View::unfounded(ring.clone())).unwrap();
            gateway.start(None);
            world.network.plug_process(name.clone(), Arc::new(gateway.clone()), process);
            gateway
        };
        let gateways = names.iter().map(begin).collect();
        Self { world, names, gateways }
    }

    /// A request to some region; every third one has a key that was sent before.
    fn request(
        &self,
        dice: &SimDice,
        sent: &mut u64,
    ) -> (Arc<Gateway<SimPorts>>, Request<onceway::ports::Body>) {
        let pick = |count: u64| usize::try_from(dice.bits() % count).unwrap();
        let number = if *sent > 10 && pick(3) == 0 { *sent - pick(10) as u64 } else { *sent + 1 };
        *sent = number.max(*sent);
        // The key determines the route: a key is sent on one route only.
        let (path, _) = ROUTES[number as usize % ROUTES.len()];
        let request = Request::post(format!("/{path}"))
            .header("authorization", "Bearer sk")
            .header("idempotency-key", format!("key-{number}"))
            .header("content-type", "application/json")
            .body(body::full("{}"))
            .unwrap();
        (self.gateways[pick(3)].clone(), request)
    }

    /// Plays for so long. Returns the number of successful answers.
    async fn play(&self, run: Run, length: Duration) -> u64 {
        let dice = SimDice::new(SEED, u64::MAX);
        let begin = Instant::now();
        let (mut sent, mut due) = (0, begin);
        let mut answers = tokio::task::JoinSet::new();
        let mut checker = Checker::new([Arc::from("rerun")].into(), failover().window);
        let (mut now, mut answered) = (begin, 0);
        while now - begin < length {
            if run.cuts {
                self.cut(now - begin);
            }
            while run.rate > 0 && due <= now {
                let (gateway, request) = self.request(&dice, &mut sent);
                answers.spawn(async move { gateway.handle(request).await.status().is_success() });
                due += Duration::from_secs(1) / u32::try_from(run.rate).unwrap();
            }
            if run.checked {
                let breaches = checker.step(&self.world);
                assert!(breaches.is_empty(), "{breaches:#?}");
            }
            now += STEP;
            sleep_until(now).await;
            while let Some(done) = answers.try_join_next() {
                answered += u64::from(done.unwrap());
            }
        }
        while let Some(done) = answers.join_next().await {
            answered += u64::from(done.unwrap());
        }
        answered
    }

    fn cut(&self, at: Duration) {
        let minute = ms(60_000);
        let [one, two, three] = &self.names[..] else { panic!("three regions") };
        let into = Duration::from_millis(u64::try_from(at.as_millis() % minute.as_millis()).unwrap());
        if into == ms(20_000) || into == ms(20_000) + CUT {
            for other in [two, three] {
                self.world.cut(one, other, into == ms(20_000), ONE_WAY);
            }
        }
    }
}

/// The time that this thread has been on a core, which does not depend on the machine's other work.
/// If the kernel does not report it, the time on the clock.
fn on_core() -> Duration {
    static BEGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').next().and_then(|text| text.parse().ok());
    nanos.map_or_else(|| BEGIN.get_or_init(std::time::Instant::now).elapsed(), Duration::from_nanos)
}

fn measure(run: Run, length: Duration) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let begun = on_core();
    let (answered, events) = runtime.block_on(async {
        let deployment = Deployment::start();
        let answered = deployment.play(run, length).await;
        (answered, deployment.world.events())
    });
    let took = (on_core() - begun).as_secs_f64();
    let name = run.name;
    println!(
        "{name:<40} {:>7.0} x real time {:>10.0} events/s {events:>9} events {answered:>7} answered {took:>7.2} s on a core",
        length.as_secs_f64() / took,
        events as f64 / took,
    );
}

fn main() {
    // Cargo adds `--bench` itself.
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let (minutes, rate) = (numbers.next().unwrap_or(10), numbers.next().unwrap_or(5));
    let idle = Run { name: "idle", rate: 0, checked: false, cuts: false };
    let runs = [
        idle,
        Run { name: "requests", rate, ..idle },
        Run { name: "requests, checked", rate, checked: true, ..idle },
        Run { name: "requests and cuts", rate, cuts: true, ..idle },
        Run { name: "requests and cuts, checked", rate, checked: true, cuts: true },
    ];
    println!("{minutes} simulated minutes, three regions, {rate} requests/s");
    for run in runs {
        measure(run, Duration::from_secs(60 * minutes));
    }
}

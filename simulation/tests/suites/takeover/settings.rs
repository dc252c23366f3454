//! The settings of the suite's gateways: routes by name, timings, and takeovers.
//!
//! `trio.rs` starts gateways with it. Everything here is short, so that a takeover takes seconds. It
//! must not differ from region to region.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Uri};
use onceway::gateway::authority::upstream::UpstreamHealth;
use onceway::gateway::authority::{Failover, Mode as Failing};
use onceway::gateway::concurrency::MostAtOnce;
use onceway::gateway::credentials::{Caller, Credentials, Voucher, digest};
use onceway::gateway::route::{
    Accept, Alone, Binding, Escrow, Mismatch, Mode, PathPattern, Policy, Protection, Route, Routes,
};
use onceway::gateway::signature::FingerprintRule;
use onceway::gateway::{Settings, Timings};
use onceway::protocol::decide::Recovery;
use onceway::protocol::job::Backoff;
use onceway::protocol::key::{Syntax, Tenant};
use onceway::protocol::key_policy::KeyPolicy;
use onceway::protocol::lifetime::Retention;
use onceway::protocol::outcome::OutcomeSets;
use onceway::protocol::region::RegionName;
use onceway::protocol::time::Drift;
use onceway::protocol::versions::Versions;
use onceway::protocol::window::WindowRule;

/// Whole milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The length of a lease.
pub const LEASE: Duration = ms(3_000);
/// The shortest window.
pub const FLOOR: Duration = ms(1_000);
/// The time for which a region that came back must have been well.
pub const STABLE: Duration = ms(2_000);
/// The longest time of a claim without an outcome.
pub const HOLD: Duration = ms(30_000);
/// The time for which a request may still be inside the upstream after its hold.
pub const SETTLE_TIME: Duration = ms(2_000);
/// The allowed drift of clocks.
pub const DRIFT: Drift = Drift { ppm: 1_000, margin: ms(50) };

/// The retention of a key, and the time of its tombstone after that: longer than any scenario
/// except those about it.
pub const LIFE: Duration = Duration::from_secs(86_400);
/// Routes, each with its recovery. Those that begin with `strict` lodge their claims with the next
/// region; `strict-alone` runs them if there is none. Those that begin with `later` accept.
pub const ROUTES: [(&str, Recovery); 9] = [
    ("park", Recovery::Park),
    ("probe", Recovery::Probe),
    ("rerun", Recovery::Rerun { max_attempts: 3 }),
    ("strict", Recovery::Park),
    ("strict-probe", Recovery::Probe),
    ("strict-alone", Recovery::Park),
    ("strict-rerun", Recovery::Rerun { max_attempts: 3 }),
    ("later", Recovery::Probe),
    ("later-park", Recovery::Park),
];

/// The settings for takeovers.
pub fn failover() -> Failover {
    Failover {
        mode: Failing::Automatic,
        lease: LEASE,
        window: WindowRule { percent: 200, floor: FLOOR, beyond: ms(60_000) },
        drain_limit: ms(300),
        kill_after: ms(5_000),
        stable_for: STABLE,
        min_serving: 1,
        witnesses: Vec::new(),
    }
}

/// The settings of a region's gateway.
pub fn settings(me: &RegionName, failover: Failover, life: Duration) -> Settings {
    let mut credentials = Credentials::default();
    credentials.insert(digest(b"sk"), Caller::new(Tenant::parse("acme").unwrap(), Voucher::File, None));
    Settings {
        failover,
        me: me.clone(),
        generation: 1,
        routes: Routes(ROUTES.map(|(name, recovery)| route(name, recovery, life)).to_vec()),
        credentials: Arc::new(credentials),
        drift: DRIFT,
        skew: ms(100),
        seals_requests: false,
        speaks: Versions::OURS,
        timings: Timings {
            heartbeat: ms(100),
            ping: ms(100),
            silent_after: ms(1_000),
            poll: ms(100),
            attach_poll: ms(50),
            body_within: ms(5_000),
            claim_within: ms(2_000),
            settle_within: ms(2_000),
            probe_within: ms(1_000),
            jobs_poll: ms(200),
            sweep: ms(1_000),
            reap: ms(1_000),
            reap_pause: ms(20),
        },
        quota: None,
        most_at_once: MostAtOnce::default(),
        shadow: false,
        upstream_health: Some(UpstreamHealth {
            path: Uri::from_static("/healthz"),
            every: ms(500),
            within: ms(200),
            sick_after: ms(2_000),
            cool_down: ms(20_000),
        }),
        shared: onceway::protocol::digest::digest("onceway/test/1", &[]),
    }
}

fn route(name: &str, recovery: Recovery, life: Duration) -> Route {
    let alone = if name == "strict-alone" { Alone::Run } else { Alone::Refuse };
    let escrow = if name.starts_with("strict") { Escrow::Claim(alone) } else { Escrow::Off };
    let policy = Policy {
        syntax: Syntax::Lenient,
        key_policy: KeyPolicy::default(),
        fingerprint: FingerprintRule::Whole,
        mismatch: Mismatch::Unprocessable,
        recovery,
        probe: Some(Uri::from_static("/status")),
        hold: HOLD,
        wait: ms(2_000),
        upstream_timeout: ms(3_000),
        settle_time: SETTLE_TIME,
        status_ends_attempt: false,
        escrow,
        retention: Retention::For(life),
        tombstone: life,
        body_limit: 1 << 16,
        stored_limit: 1 << 10,
        outcomes: OutcomeSets::default(),
        replay_headers: Vec::new(),
        keep_headers: Vec::new(),
        mode: if name.starts_with("later") { Mode::Accept } else { Mode::Sync },
        accept: Accept {
            request_retention: ms(60_000),
            max_runs: 5,
            backoff: Backoff { first: ms(400), most: ms(1_600) },
        },
        bind: Binding::Tenant,
    };
    Route {
        name: Arc::from(name),
        methods: vec![Method::POST],
        path: PathPattern::parse(&format!("/{name}")).unwrap(),
        protection: Protection::Required(Arc::new(policy)),
        allow_overrides: false,
    }
}

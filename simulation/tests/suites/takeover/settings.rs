//! The settings of the suite's gateways: routes by name, and takeovers.
//!
//! `trio.rs` starts gateways with it; `shared.rs` has what it is made of.

use std::time::Duration;

use http::Uri;
use onceway::gateway::authority::failover::UpstreamHealth;
use onceway::gateway::authority::failover::{Failover, Mode as Failing};
use onceway::gateway::credentials::caller::{Caller, Voucher};
use onceway::gateway::credentials::{Credentials, digest};
use onceway::gateway::policy::route::{Alone, Escrow, Mode, Policy, Route};
use onceway::gateway::settings::Settings;
use onceway::protocol::key::Tenant;
use onceway::protocol::record::Recovery;
use onceway::protocol::region::RegionName;

use crate::shared;
pub use crate::shared::ms;

/// The time for which a region that came back must have been well.
pub const STABLE: Duration = ms(2_000);
/// The longest time of a claim without an outcome.
pub const HOLD: Duration = ms(30_000);

/// The retention of a key, and its tombstone's time: longer than scenarios about other things.
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

pub fn failover() -> Failover {
    shared::failover(Failing::Automatic, STABLE)
}

pub fn settings(me: &RegionName, failover: Failover, life: Duration) -> Settings {
    let mut credentials = Credentials::default();
    credentials.insert(digest(b"sk"), Caller::new(Tenant::parse("acme").unwrap(), Voucher::File, None));
    let routes = ROUTES.map(|(name, recovery)| route(name, recovery, life)).to_vec();
    let upstream_health = Some(UpstreamHealth {
        path: Uri::from_static("/healthz"),
        every: ms(500),
        within: ms(200),
        sick_after: ms(2_000),
        cool_down: ms(20_000),
    });
    Settings { upstream_health, ..shared::settings(me, failover, routes, credentials) }
}

fn route(name: &str, recovery: Recovery, life: Duration) -> Route {
    let alone = if name == "strict-alone" { Alone::Run } else { Alone::Refuse };
    let escrow = if name.starts_with("strict") { Escrow::Claim(alone) } else { Escrow::Off };
    let mode = if name.starts_with("later") { Mode::Accept } else { Mode::Sync };
    shared::route(name, Policy { escrow, mode, ..shared::policy(recovery, HOLD, life) })
}

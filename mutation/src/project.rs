//! This project: the packages, the files to mutate, and the suites to run.
//!
//! The suites are ordered, the cheapest first. They may leave a mutant unreached; it is reported
//! as such. This file must not name a single test.

use crate::suites::Suite;

/// Packages that are built together, as `cargo test` does, so that they share crates.
pub const PACKAGES: [&str; 2] = ["onceway", "simulation"];

/// Code on which "once" depends: the pure protocol, the authority, the gateway files that perform
/// the protocol's decisions, the store's SQL, and the listeners for peers and operators.
pub const PATHS: [&str; 26] = [
    "src/protocol",
    "src/gateway/authority",
    "src/gateway/applied.rs",
    "src/gateway/catching_up.rs",
    "src/gateway/claim.rs",
    "src/gateway/doubles.rs",
    "src/gateway/escrow.rs",
    "src/gateway/finish.rs",
    "src/gateway/hearing.rs",
    "src/gateway/heartbeat.rs",
    "src/gateway/jobs.rs",
    "src/gateway/operator.rs",
    "src/gateway/orphans.rs",
    "src/gateway/outcome.rs",
    "src/gateway/race.rs",
    "src/gateway/reaper.rs",
    "src/gateway/recover.rs",
    "src/gateway/request.rs",
    "src/gateway/stand_in.rs",
    "src/gateway/sweep.rs",
    "src/adapters/postgres/sql",
    "src/server/admin.rs",
    "src/server/admin_authority.rs",
    "src/server/admin_door.rs",
    "src/server/admin_jobs.rs",
    "src/server/peer.rs",
];

/// Suites, the cheapest first.
pub const SUITES: [Suite; 5] = [
    Suite {
        name: "unit",
        binary: ("onceway", "lib"),
        tests: &["protocol::", "gateway::", "adapters::", "ports::", "server::"],
        program: None,
        real: false,
    },
    Suite { name: "simulation", binary: ("simulation", "suites"), tests: &[], program: None, real: false },
    Suite {
        name: "swarm",
        binary: ("simulation", "onceway-sim"),
        tests: &[],
        program: Some(&["seeds", "swarm", "--count", "100"]),
        real: false,
    },
    Suite {
        name: "store",
        binary: ("onceway", "suites"),
        tests: &["store::", "contract::"],
        program: None,
        real: true,
    },
    Suite {
        name: "doors",
        binary: ("onceway", "suites"),
        tests: &["net::", "credentials::", "witness::", "console::pages", "accept::", "cli::"],
        program: None,
        real: true,
    },
];

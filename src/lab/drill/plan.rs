//! The drills by name, and their settings.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drill {
    Kill,
    Restart,
    Isolate,
    Drain,
    Ring,
    DiskLost,
    Reseed,
    Promote,
    Soak,
    Window,
}

/// Name on the command line, and the drill on one line; in the order of [`Drill`].
const DRILLS: &str = "\
kill: a region's gateway and Postgres killed (SIGKILL) under load, and started again
restart: gateway, Postgres, both, and two regions at once, killed and started again at once: how long keys are refused
isolate: both links of a region cut, while its clients go on talking to it
drain: a planned drain and return under load: pauses below a second, nothing twice
ring: other weights and back under load: exactly the planned arcs move, nothing twice
disk-lost: a region dies with its disk: rebuilt from the others while they serve its keys
reseed: slots lost, the region killed and back: no key runs again unsaid while its records are copied
promote: a region's Postgres under Patroni: the primary killed, the standby promoted: rows lost, time without service, doubles
soak: two gateways per region for --minutes: reloads, rotated certificates, restarts, drains; nothing may leak
window: doubles without escrow, measured and predicted, for multiples 0, 1, 2 and 4 of the lag";

impl Drill {
    /// All drills; the table comes last.
    pub const ALL: [Drill; 10] = {
        use Drill::*;
        [Kill, Restart, Isolate, Drain, Ring, DiskLost, Reseed, Promote, Soak, Window]
    };

    fn line(self) -> (&'static str, &'static str) {
        DRILLS.lines().nth(self as usize).and_then(|line| line.split_once(": ")).unwrap_or_default()
    }

    pub fn name(self) -> &'static str {
        self.line().0
    }

    pub fn about(self) -> &'static str {
        self.line().1
    }

    /// True for drills that run only if they are named: one takes long, one needs Patroni.
    pub fn is_named(self) -> bool {
        matches!(self, Drill::Soak | Drill::Promote)
    }

    pub fn parse(name: &str) -> Option<Drill> {
        Drill::ALL.into_iter().find(|drill| drill.name() == name)
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub runs: u32,
    /// Length of a fault, for drills that have no length of their own.
    pub span: Option<Duration>,
    pub rtt: Duration,
    /// Keys that clients start per second, in all regions together.
    pub rate: f64,
    pub probes: f64,
    /// Holds spans against their bounds; on a machine with other work they prove nothing.
    pub timed: bool,
    /// Length of a soak. In ten minutes or more: a restart each minute, a drain every five. In
    /// less: each at least once.
    pub soak: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runs: 1,
            span: None,
            rtt: Duration::from_millis(60),
            rate: 15.0,
            probes: 12.5,
            timed: true,
            soak: Duration::from_secs(30 * 60),
        }
    }
}

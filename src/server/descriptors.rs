//! The limit of open files, raised as far as allowed, with a warning if it is too low.
//!
//! Shells commonly start a process with a limit of 1,024, which the process may raise itself. No
//! limit keeps a process from starting: few clients need few files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::admin_door;
use super::peer::PeerLimits;
use crate::config::Config;

/// Open files beside connections: the runtime's, links to peers, files read again.
const BESIDE: usize = 200;

/// Most files that a gateway of this configuration can have open.
///
/// They are connections of clients, peers, operators and the store. Each request in work needs one
/// to the upstream, both for own clients and for forwards of peers.
pub fn of_gateway(config: &Config) -> usize {
    let listen = &config.process.listen;
    let doors = 1 + usize::from(listen.trusted.is_some());
    // The store has `pool` connections, half as many again, and six.
    let store = 2 * config.process.store.pool;
    doors * listen.limits.connections
        + 2 * listen.at_once.requests
        + of_witness(PeerLimits::default().connections)
        + store
}

/// Most files that a witness with this many connections of peers can have open.
pub(super) fn of_witness(peers: usize) -> usize {
    peers + admin_door::MOST_CONNECTIONS + BESIDE
}

pub(super) fn for_gateway(config: &Config) {
    make_room(of_gateway(config), ", or lower connections and requests in [listen.limits]");
}

/// Raises the limit as far as this process may. If it is below `needed`, logs the advice `or`.
pub(super) fn make_room(needed: usize, or: &str) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Only a filter of system calls refuses that. Then the limit stays as it was.
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // `None`: no limit.
    let limit = if is_raised { maximum } else { current };
    if let Some(limit) = limit.filter(|limit| *limit < needed as u64) {
        tracing::warn!(
            limit,
            needed,
            "fewer files may be open than its connections can need, and the one too many is refused: raise the hard limit of whoever starts it (`ulimit -Hn`, LimitNOFILE of a unit){or}"
        );
    }
}

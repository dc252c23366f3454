//! The limit of open files, sockets among them: raised as far as allowed, with a warning if it is
//! too low for the process's bounds.
//!
//! Shells commonly start a process with a limit of 1,024, which the process may raise itself.
//! [`super::run`] and [`super::witness`] do it before they listen, [`super::reload`] when bounds
//! change. This file must not keep a process from starting: few clients need few files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::admin_door;
use super::peer::PeerLimits;
use crate::config::Config;

/// Open files beside bounded connections: the runtime's files, links to peers, files that are read
/// again.
const BESIDE: usize = 200;

/// Most files that a gateway of this configuration can have open.
///
/// They are clients' connections on each listener, and connections of peers, of operators and of
/// the store. Each request in work needs one to the upstream, both for own clients and for forwards
/// of peers.
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

/// Raises the limit for the files that a gateway can have open, as far as allowed.
pub(super) fn for_gateway(config: &Config) {
    make_room(of_gateway(config), ", or lower connections and requests in [listen.limits]");
}

/// Raises the limit to `needed` open files, as far as this process may. If that is not enough, logs
/// it with the advice `or`.
pub(super) fn make_room(needed: usize, or: &str) {
    let Some(limit) = raised() else { return };
    if limit < needed as u64 {
        tracing::warn!(
            limit,
            needed,
            "fewer files may be open than its connections can need, and the one too many is refused: raise the hard limit of whoever starts it (`ulimit -Hn`, LimitNOFILE of a unit){or}"
        );
    }
}

/// Limit of open files after it was raised as far as allowed. `None`: no limit.
fn raised() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Only a filter of system calls refuses that. Then the limit stays as it was.
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_refused) => current,
    }
}

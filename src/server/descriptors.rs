//! How many files a process may have open, sockets among them: as many as whoever started it allows, and a warning where its bounds can need more.
//!
//! Neighbours: [`super::run`] and [`super::witness`] ask before they listen, [`super::reload`] when bounds were replaced. Shells commonly start a
//! process with 1,024, which it may raise itself. It must not keep a process from starting: few clients are served with few files, too.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::admin_door;
use super::peer::PeerLimits;
use crate::config::Config;

/// What is open beside connections that have a bound: the runtime's files, links to peers, files that are read again.
const BESIDE: usize = 200;

/// The most that a gateway of this configuration can have open: its clients' connections, on each door; one to the upstream for each request that is
/// worked on, of its own clients and of those that peers forward; connections of peers and operators; the store's.
pub fn of_gateway(config: &Config) -> usize {
    let listen = &config.process.listen;
    let doors = 1 + usize::from(listen.trusted.is_some());
    // Half as many as `pool` again, and six.
    let store = 2 * config.process.store.pool;
    doors * listen.limits.connections
        + 2 * listen.at_once.requests
        + of_witness(PeerLimits::default().connections)
        + store
}

/// The same of a witness that takes so many connections of peers.
pub(super) fn of_witness(peers: usize) -> usize {
    peers + admin_door::MOST_CONNECTIONS + BESIDE
}

/// Makes room for what a gateway can have open, as far as it may.
pub(super) fn for_gateway(config: &Config) {
    make_room(of_gateway(config), ", or lower connections and requests in [listen.limits]");
}

/// Makes room for `needed` open files, as far as this process may; says so where that is not enough, with what else to do.
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

/// How many files may be open, once that was raised as far as it may be. `None`: as many as there are.
fn raised() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Only a filter of system calls refuses that; then it stays as it was.
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_refused) => current,
    }
}

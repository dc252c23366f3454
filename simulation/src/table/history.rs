//! What one region's Postgres went through: the truth for checkers, which no gateway sees.
//!
//! Neighbours: [`super`] writes it down, `simulation::truth` shows it. It outlives a restored copy and a destroyed disk. It must not be
//! read by any statement.

use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::Token;
use onceway::protocol::region::Origin;
use onceway::protocol::register::{Accepted, Ballot};
use onceway::protocol::view::{AcceptorId, View};

/// A claim that was lodged here durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lodgment {
    /// When, since the world began.
    pub at: Duration,
    /// The key.
    pub id: KeyId,
    /// Whose claim.
    pub origin: Origin,
    /// Its token.
    pub token: Token,
}

/// Everything that a store went through and that its tables do not show any more.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Each state of the gate, with when it was committed.
    pub gates: Vec<(Duration, GateState)>,
    /// Each promise and each accepted value of the acceptor, renewals left out.
    pub acceptors: Vec<(AcceptorId, Option<Ballot>, Option<Accepted>)>,
    /// Each claim that was lodged here.
    pub lodged: Vec<Lodgment>,
    /// Each view that was kept here, in the order in which they were.
    pub views: Vec<Arc<View>>,
}

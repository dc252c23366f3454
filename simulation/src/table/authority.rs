//! One region's Postgres in memory: the acceptor's row, the gate's state and the chosen views.
//!
//! The heartbeat of a new epoch is in the same commit as the gate that adopts it. So it ships
//! behind every claim of the older epoch.

use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::store::{GateVersion, Written};
use onceway::protocol::authority::GateState;
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::register::{Acceptor, Ballot};
use onceway::protocol::view::View;

use super::stored::span;
use super::{Gated, Granted, Held, Table, founded};

impl Table {
    pub(crate) fn acceptor(&self) -> (u64, Acceptor) {
        self.acceptor.clone()
    }

    /// An acceptor that holds nothing has nothing to forget: its founding needs no approved boot.
    pub(crate) fn set_acceptor(&mut self, version: u64, acceptor: &Acceptor) -> Written {
        let (current, held) = &self.acceptor;
        if held.accepted.is_some() && !self.is_open() && !is_disabled(Check::RestoredVotes) {
            return Written::GateMoved;
        }
        if *current != version || held.id != acceptor.id {
            return Written::Lost;
        }
        self.write_acceptor(acceptor.clone());
        Written::Done
    }

    fn write_acceptor(&mut self, acceptor: Acceptor) {
        let held = (acceptor.promised.clone(), acceptor.accepted.clone());
        if held != (self.acceptor.1.promised.clone(), self.acceptor.1.accepted.clone()) {
            let at = self.clock.elapsed();
            self.history.acceptors.push(Held { at, id: acceptor.id, promised: held.0, accepted: held.1 });
        }
        let granted = Granted::between(&self.acceptor.1, &acceptor, self.clock.elapsed());
        self.history.granted.extend(granted);
        self.acceptor = (self.acceptor.0 + 1, acceptor);
        self.flushed();
    }

    pub(crate) fn set_gate(&mut self, version: GateVersion, state: &GateState) -> Written {
        if !self.is_open() {
            return Written::GateMoved;
        }
        let falls = self.state.is_some() && state.view.epoch() < self.epoch;
        if self.version != version || falls {
            self.history.opened_late += u64::from(state.is_open());
            return Written::Lost;
        }
        self.write_gate(state.clone());
        // A heartbeat of the new epoch, which counts nothing.
        let (observed, step) = self.counted();
        self.write_beat(observed, step);
        Written::Done
    }

    fn write_gate(&mut self, state: GateState) {
        self.keep_views(std::slice::from_ref(&state.view));
        self.epoch = state.view.epoch();
        self.version.0 += 1;
        let (at, applied, lodged) = (self.clock.elapsed(), self.applied(), self.lodged());
        let lags = self.history.lags_at(at);
        self.history.gates.push(Gated { at, state: state.clone(), applied, lodged, lags });
        self.state = Some(state);
        self.flushed();
    }

    pub(crate) fn keep_views(&mut self, views: &[Arc<View>]) {
        let (now, known) = (self.start(), self.views.len());
        for view in views {
            if let Entry::Vacant(place) = self.views.entry(view.epoch()) {
                place.insert((view.clone(), now));
                self.history.views.push(view.clone());
            }
        }
        if self.views.len() > known {
            self.flushed();
        }
    }

    pub(crate) fn views(&self) -> Vec<(Arc<View>, Duration)> {
        let now = self.now();
        self.views.values().map(|(view, at)| (view.clone(), span(now.saturating_sub(*at)))).collect()
    }

    pub(crate) fn found(&mut self, ballot: &Ballot, view: &Arc<View>) {
        self.write_acceptor(founded(&self.acceptor.1, ballot, view));
        self.write_gate(GateState::founded(view.clone()));
    }
}

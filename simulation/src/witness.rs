//! A witness: an acceptor without a store of keys.
//!
//! Neighbours: [`crate::world`] makes it and plugs it into [`crate::peers`]; `protocol::register` answers. What it accepted is durable at once
//! and outlives everything. It must not serve, own or remember anything else.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceway::ports::Clock;
use onceway::ports::peers::{Forward, ForwardReply, Pong, Question, Told};
use onceway::protocol::digest::digest;
use onceway::protocol::grants::GrantWatch;
use onceway::protocol::region::RegionName;
use onceway::protocol::register::{Accepted, Acceptor, Ballot, Message, Reply};
use onceway::protocol::time::Drift;
use onceway::protocol::versions::{NEWEST, Versions};
use onceway::protocol::view::{AcceptorId, View};

use crate::clock::SimClock;
use crate::peers::{Answering, Region};
use crate::table::{Granted, Held};

/// A witness, running since it was made.
pub struct Witness {
    clock: SimClock,
    held: Mutex<Inner>,
}

struct Inner {
    acceptor: Acceptor,
    watch: GrantWatch,
    history: Vec<Held>,
    granted: Vec<Granted>,
    speaks: Versions,
}

impl Inner {
    fn write(&mut self, next: Acceptor, at: Duration) {
        self.granted.extend(Granted::between(&self.acceptor, &next, at));
        let said = |acceptor: &Acceptor| (acceptor.promised.clone(), acceptor.accepted.clone());
        let (promised, accepted) = said(&next);
        if said(&self.acceptor) != (promised.clone(), accepted.clone()) {
            self.history.push(Held { at, id: next.id, promised, accepted });
        }
        self.acceptor = next;
    }
}

impl Witness {
    pub(crate) fn new(id: AcceptorId, clock: SimClock, drift: Drift) -> Self {
        let (history, granted) = (Vec::new(), Vec::new());
        let (acceptor, watch, speaks) = (Acceptor::made(id), GrantWatch::new(drift), Versions::OURS);
        let held = Inner { acceptor, watch, history, granted, speaks };
        Self { clock, held: Mutex::new(held) }
    }

    /// From now on it says that it speaks these protocol versions. It votes all the same.
    pub fn says_it_speaks(&self, versions: Versions) {
        self.held().speaks = versions;
    }

    /// What its acceptor holds.
    pub fn acceptor(&self) -> Acceptor {
        self.held().acceptor.clone()
    }

    /// Each promise and each value that it has held since the cursor was last moved.
    pub(crate) fn history_since(&self, cursor: &mut usize) -> Vec<Held> {
        let held = self.held();
        let fresh = held.history.get(*cursor..).unwrap_or_default().to_vec();
        *cursor = held.history.len();
        fresh
    }

    /// Each lease that it has granted since the cursor was last moved.
    pub(crate) fn granted_since(&self, cursor: &mut usize) -> Vec<Granted> {
        let held = self.held();
        let fresh = held.granted.get(*cursor..).unwrap_or_default().to_vec();
        *cursor = held.granted.len();
        fresh
    }

    pub(crate) fn found(&self, ballot: &Ballot, view: &Arc<View>) {
        let mut held = self.held();
        let accepted = Accepted { ballot: ballot.clone(), view: view.clone() };
        let founded = Acceptor {
            admitted: true,
            promised: Some(ballot.clone()),
            accepted: Some(accepted),
            ..held.acceptor.clone()
        };
        held.write(founded, self.clock.elapsed());
    }

    fn answer(&self, to: Option<AcceptorId>, message: &Message) -> Reply {
        let now = self.clock.now();
        let mut held = self.held();
        let Inner { acceptor, watch, history: _, granted: _, speaks: _ } = &mut *held;
        watch.observe(acceptor, now);
        let (next, reply) = acceptor.answer(to, message, &|region, grant| watch.is_over(region, grant, now));
        if let Some(next) = next {
            watch.observe(&next, now);
            held.write(next, self.clock.elapsed());
        }
        reply
    }

    fn held(&self) -> MutexGuard<'_, Inner> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region for Witness {
    fn forward(&self, _from: RegionName, _forward: Forward) -> Answering<'_, ForwardReply> {
        // Nobody forwards to a witness; whoever does gets what an address without a listener gives.
        Box::pin(pending())
    }

    fn pong(&self) -> Answering<'_, Pong> {
        let (accepted, speaks) = {
            let held = self.held();
            (held.acceptor.accepted.clone(), held.speaks)
        };
        let epoch = accepted.as_ref().map_or(0, |accepted| accepted.view.epoch());
        let view = accepted.map_or_else(|| digest("witness", &[]), |accepted| accepted.view.digest());
        let shared = digest("witness", &[]);
        Box::pin(async move {
            Pong {
                speaks,
                protocol: NEWEST,
                epoch,
                view,
                shared,
                serving: false,
                beat: None,
                origin: None,
                upstream_failing: false,
                heard: Some(BTreeMap::new()),
                applied: BTreeMap::new(),
            }
        })
    }

    fn ask(&self, _from: RegionName, question: Question) -> Answering<'_, Told> {
        let told = match question {
            Question::Acceptor { to, message } => Told::Acceptor(self.answer(to, &message)),
            Question::Views { .. }
            | Question::Adopt { .. }
            | Question::Release { .. }
            | Question::Frontier { .. }
            | Question::Rows { .. }
            | Question::Lodge(_)
            | Question::LodgeAnswer { .. }
            | Question::Void { .. }
            | Question::Operator(_)
            | Question::Key { .. } => Told::Refused("a witness only votes".to_owned()),
        };
        Box::pin(async move { told })
    }
}

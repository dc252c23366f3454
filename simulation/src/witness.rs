//! A witness: the product's own, over a file and a clock that are simulated.
//!
//! `gateway::authority::register::witness` answers, with the table of speakers and its bounds. A
//! write is durable at once, and outlives everything but a copy that is put back.

use std::sync::{Arc, Mutex};

use onceway::gateway::authority::register::witness::{Duty, Witness as Answers};
use onceway::ports::Acceptors;
use onceway::ports::peers::{Forward, ForwardReply, PeerMessage, PeerReply, Pong, Question};
use onceway::ports::store::{StoreError, Written};
use onceway::protocol::region::RegionName;
use onceway::protocol::register::{Acceptor, Ballot};
use onceway::protocol::versions::Versions;
use onceway::protocol::view::{AcceptorId, View};

use crate::clock::SimClock;
use crate::peers::{Answering, Region};
use crate::process::locked;
use crate::table::{Granted, Held, founded, fresh};

pub struct Witness {
    clock: SimClock,
    file: SimFile,
    running: Mutex<Arc<Answers<SimFile, SimClock>>>,
}

/// Its file, and the truth of all that stood in it.
#[derive(Clone)]
struct SimFile(Arc<Mutex<Kept>>);

struct Kept {
    clock: SimClock,
    version: u64,
    acceptor: Acceptor,
    history: Vec<Held>,
    granted: Vec<Granted>,
}

/// Later acceptors of one witness are so far apart: no two of a world have one id.
const APART: u128 = 1_000;

impl Kept {
    fn write(&mut self, next: Acceptor) {
        let at = self.clock.elapsed();
        self.granted.extend(Granted::between(&self.acceptor, &next, at));
        let said = |acceptor: &Acceptor| (acceptor.promised.clone(), acceptor.accepted.clone());
        let (promised, accepted) = said(&next);
        if said(&self.acceptor) != (promised.clone(), accepted.clone()) {
            self.history.push(Held { at, id: next.id, promised, accepted });
        }
        self.version += 1;
        self.acceptor = next;
    }
}

impl Acceptors for SimFile {
    async fn acceptor(&self) -> Result<(u64, Acceptor), StoreError> {
        let kept = locked(&self.0);
        Ok((kept.version, kept.acceptor.clone()))
    }

    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        let mut kept = locked(&self.0);
        if kept.version != version {
            return Ok(Written::Lost);
        }
        kept.write(acceptor.clone());
        Ok(Written::Done)
    }
}

impl Witness {
    pub(crate) fn new(id: AcceptorId, clock: SimClock, duty: Duty) -> Self {
        let (history, granted, acceptor) = (Vec::new(), Vec::new(), Acceptor::made(id));
        let kept = Kept { clock: clock.clone(), version: 0, acceptor, history, granted };
        let file = SimFile(Arc::new(Mutex::new(kept)));
        let running = Mutex::new(begin(duty, &file, &clock));
        Self { clock, file, running }
    }

    /// A process that speaks these protocol versions takes the place of the one that runs.
    pub fn starts_speaking(&self, speaks: Versions) {
        self.start(Duty { speaks, ..self.running().duty().clone() });
    }

    /// Its file is put back to what it was then, and a process starts over it.
    pub fn put_back(&self, then: &Acceptor) {
        {
            let mut kept = locked(&self.file.0);
            let anew = AcceptorId(kept.acceptor.id.0 - APART);
            let begun = then.after_start(false, anew);
            kept.write(begun);
        }
        self.start(self.running().duty().clone());
    }

    fn start(&self, duty: Duty) {
        let begun = begin(duty, &self.file, &self.clock);
        *locked(&self.running) = begun;
    }

    fn running(&self) -> Arc<Answers<SimFile, SimClock>> {
        locked(&self.running).clone()
    }

    pub fn acceptor(&self) -> Acceptor {
        locked(&self.file.0).acceptor.clone()
    }

    /// Each promise and each value that it has held since the cursor was last moved.
    pub(crate) fn history_since(&self, cursor: &mut usize) -> Vec<Held> {
        fresh(&locked(&self.file.0).history, cursor).to_vec()
    }

    /// Each lease that it has granted since the cursor was last moved.
    pub(crate) fn granted_since(&self, cursor: &mut usize) -> Vec<Granted> {
        fresh(&locked(&self.file.0).granted, cursor).to_vec()
    }

    pub(crate) fn found(&self, ballot: &Ballot, view: &Arc<View>) {
        {
            let mut kept = locked(&self.file.0);
            let next = founded(&kept.acceptor, ballot, view);
            kept.write(next);
        }
        self.start(self.running().duty().clone());
    }
}

/// A process that starts over the file. Panics if a newer version wrote it: no scenario does.
fn begin(duty: Duty, file: &SimFile, clock: &SimClock) -> Arc<Answers<SimFile, SimClock>> {
    let held = locked(&file.0).acceptor.clone();
    match Answers::new(duty, file.clone(), clock.clone(), &held) {
        Ok(running) => Arc::new(running),
        Err(why) => panic!("{why}"),
    }
}

impl Region for Witness {
    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        self.running().hears(from, said)
    }

    fn forward(&self, _from: RegionName, _forward: Forward) -> Answering<'_, ForwardReply> {
        let accepted = self.acceptor().accepted;
        let epoch = accepted.map_or(0, |accepted| accepted.view.epoch());
        Box::pin(async move { ForwardReply::NotOwner { epoch } })
    }

    fn pong(&self) -> Answering<'_, Pong> {
        let running = self.running();
        Box::pin(async move { running.pong().await })
    }

    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, PeerReply> {
        let running = self.running();
        Box::pin(async move { running.ask(from, question).await })
    }
}

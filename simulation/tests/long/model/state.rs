//! A state of the model: numbers of the protocol's values, messages under way, and the truth that
//! no process in it can see.
//!
//! `parts` has the values behind the numbers, `steps` leads from one state to the next. Two states
//! are the same exactly if their possible futures are. So a state has no absolute time and no count
//! of past acts. It must not hold data that only a story needs.

/// A region's or witness's place in the list of all: 0 is `a`.
pub type Site = u8;
pub type ViewId = u32;

/// A ballot: which process of which region, by its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ballot {
    pub counter: u8,
    pub by: Site,
    pub life: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum What {
    Prepare(Ballot),
    Accept(Ballot, ViewId),
    /// A renewal, and true if it is the region's last one: replies to others say nothing.
    Renew(ViewId, bool),
    /// The reply to the last renewal.
    Granted,
}

/// A message under way. It may arrive at any time or never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mail {
    pub from: Site,
    pub to: Site,
    /// The acceptor that is addressed, or that replied.
    pub id: u8,
    pub what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Handler {
    Waits,
    /// The tenure is over: the handler is refused whenever it wakes.
    Refused,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    pub at: Site,
    /// The heartbeat after it.
    pub seq: u8,
    pub epoch: u8,
    /// The heartbeats of all regions that the claimant had applied.
    pub knew: [u8; 3],
    pub handler: Handler,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Given {
    pub by: Site,
    pub target: ViewId,
    pub seal: u8,
    pub seen: [u8; 3],
}

/// The acceptors that ever accepted a view under a ballot, as bits of their ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Accepts {
    pub ballot: Ballot,
    pub view: ViewId,
    pub by: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Left {
    pub rounds: u8,
    pub renewals: u8,
    pub releases: u8,
    pub restarts: u8,
    pub remakes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Broken {
    TwoChosen,
    Unchosen,
    TwoOwners,
    Unknown,
    BesideAnother,
    NotCovered,
    MarkBack,
    PromiseFell,
    LeaseOutlives,
    OtherOwner,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    pub desks: [u32; 3],
    pub leases: [u32; 3],
    pub gates: [u32; 3],
    pub rounds: [u32; 3],
    pub counters: [u8; 3],
    pub lives: [u8; 3],
    pub seq: [u8; 3],
    /// `applied[at][of]`.
    pub applied: [[u8; 3]; 3],
    pub left: Left,
    /// The slow clock ticks with the others the next time.
    pub ticks: bool,
    pub broken: Option<Broken>,
    pub chosen: Vec<ViewId>,
    /// Views that some process took for chosen although they are not.
    pub mistaken: Vec<ViewId>,
    pub accepts: Vec<Accepts>,
    pub runs: Vec<Run>,
    pub given: Vec<Given>,
    pub mail: Vec<Mail>,
}

impl State {
    pub fn post(&mut self, mail: Mail) {
        let place = self.mail.binary_search(&mail).unwrap_or_else(|place| place);
        self.mail.insert(place, mail);
    }

    /// Takes a message out; false if it is not there.
    pub fn take(&mut self, mail: &Mail) -> bool {
        let place = self.mail.binary_search(mail);
        place.map(|place| self.mail.remove(place)).is_ok()
    }

    /// Ends the tenure of a region: handlers that claimed under it send no more.
    pub fn refuse(&mut self, at: Site) {
        self.end(at, Handler::Refused);
    }

    fn end(&mut self, at: Site, handler: Handler) {
        let waits = |run: &&mut Run| run.at == at && run.handler == Handler::Waits;
        self.runs.iter_mut().filter(waits).for_each(|run| run.handler = handler);
    }

    /// Lets a process die with everything that it had not stored.
    pub fn forget(&mut self, at: Site) {
        self.end(at, Handler::Gone);
        self.rounds[usize::from(at)] = 0;
        self.stale(at);
    }

    /// Ends the last renewal: no earlier request is the last one any more.
    pub fn stale(&mut self, at: Site) {
        let mut mail = std::mem::take(&mut self.mail);
        mail.retain(|mail| !(mail.to == at && mail.what == What::Granted));
        for mail in mail.iter_mut().filter(|mail| mail.from == at) {
            if let What::Renew(view, true) = mail.what {
                mail.what = What::Renew(view, false);
            }
        }
        mail.sort_unstable();
        self.mail = mail;
    }
}

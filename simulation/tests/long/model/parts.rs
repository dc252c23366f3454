//! The protocol's own values and answers behind the numbers of a state.
//!
//! `pool` keeps them and says when two are the same, `steps` asks. Every answer comes from
//! `onceway::protocol`, once for each question, without the world's plant. It must not decide
//! anything itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::authority::{self, Boot, GateState, GateVersion, Pending};
use onceway::protocol::digest::{Digest32, digest};
use onceway::protocol::grants::{Admission, GrantWatch};
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::lease::Lease;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{self, Acceptor, Message, Reply, chosen, majority};
use onceway::protocol::ring::Ring;
use onceway::protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use onceway::protocol::round::{Outbox, Round, Step};
use onceway::protocol::snapshot::{self, Here, Snapshot, StoreHealth};
use onceway::protocol::time::{Drift, Moment};
use onceway::protocol::versions::Versions;
use onceway::protocol::view::{AcceptorId, Content, View};

use crate::model::pool::{self, Memo, Pool};
use crate::model::state::{Ballot, Mail, Site, ViewId, What};
use crate::model::wishes::Wish;

pub const TTL_TICKS: u64 = 2;
pub const TTL: Duration = Duration::from_nanos(TTL_TICKS);
/// The drift in ppm if all clocks run at one speed.
pub const EVEN: u32 = 0;
/// A clock may run at half the speed of another: a holder relies on one tick of a lease, and a
/// judge waits for three.
pub const UNEVEN: u32 = 500_000;
/// Any moment will do: a state's moments are relative to its own now.
pub const BEGIN: Moment = Moment::from_nanos(100);
pub const TICK: Duration = Duration::from_nanos(1);

/// An acceptor, and the observations of its grants by the process beside it.
#[derive(Clone)]
pub struct Desk {
    pub acceptor: Acceptor,
    pub promised: Option<Ballot>,
    watch: GrantWatch,
    admission: Admission,
    now: Moment,
}

pub struct Gate {
    pub state: GateState,
    pub view: ViewId,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Turn {
    Adopt(ViewId),
    Open,
    GiveUp { target: ViewId, seal: u8 },
}

#[derive(Clone)]
pub struct Opened {
    round: Round,
    pub ballot: Ballot,
}

#[derive(Clone)]
pub struct Holder {
    pub lease: Lease,
    pub asked: Moment,
    pub now: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PeerMessage {
    /// A promise, with the value that it accepted last.
    Promised(Ballot, ViewId),
    Accepted,
    Outbid(u8),
    Granted,
    Newer,
    /// Not now: blocked, not admitted, or another acceptor than the intended one.
    No,
}

#[derive(Clone, Copy)]
pub struct Answer {
    pub desk: u32,
    pub said: PeerMessage,
    /// The promise did not fall, and the accepted value is not below it.
    pub sound: bool,
}

/// A view, a region that checks if it may open, applied heartbeats, and who may be asked.
pub type Looks = (ViewId, Site, [[u8; 3]; 3], [bool; 3]);
/// The region's applied heartbeats after that, and true if it opens.
pub type Opening = ([u8; 3], bool);
/// The result for a lease: its number, and true if its tenure ended.
pub type Held = (u32, bool);

/// A round, its messages, and the view that is chosen by them; 0 if none is.
type Heard = (u32, Vec<Mail>, ViewId);

#[derive(Default)]
pub struct Parts {
    pub names: Vec<RegionName>,
    pub regions: Site,
    /// The drift that the protocol allows for, in ppm.
    ppm: u32,
    /// One clock is slow, so spans of two clocks cannot be compared.
    slow: bool,
    pub keys: Vec<KeyId>,
    pub views: Pool<View>,
    pub desks: Pool<Desk>,
    pub holders: Pool<Holder>,
    pub gates: Pool<Gate>,
    pub rounds: Pool<Opened>,
    answers: Memo<(u32, Mail), Answer>,
    ticked_desks: Memo<u32, u32>,
    pub ticked_holders: Memo<u32, Held>,
    pub grants: Memo<(u32, Site, u8), Held>,
    runs: Memo<(u32, u32, Site), u8>,
    outlives: Memo<(u32, [u32; 3], Site), bool>,
    reads: Memo<[u32; 3], ViewId>,
    gates_after: Memo<(u32, Turn), u32>,
    anew: Memo<u32, u32>,
    pub lost: Memo<u32, Held>,
    pub laid: Memo<u32, Held>,
    pub fresh: Memo<(), u32>,
    pub held: Memo<u32, bool>,
    pub asked: Memo<(u32, ViewId), (Held, bool)>,
    opened: Memo<(Ballot, ViewId, ViewId), (u32, Vec<Mail>)>,
    heard: Memo<(u32, Site, u8, PeerMessage), Heard>,
    agreed: Memo<(ViewId, u8), bool>,
    loses: Memo<(ViewId, ViewId, Site), bool>,
    pub wishes: Memo<(ViewId, Wish), ViewId>,
    pub drafts: Memo<(ViewId, Site), ViewId>,
    pub opens: Memo<Looks, Opening>,
}

pub fn boot() -> Digest32 {
    digest("model/boot", &[b"1"])
}

/// The ring of these regions and one key per order of them, that of `a`, `b`, … first.
fn ring(names: &[RegionName]) -> (Arc<Ring>, Vec<KeyId>) {
    let regions = names.iter().map(|name| RegionSpec { name: name.clone(), weight: 1 }).collect();
    let spec = RingSpec { seed: 7, place_by: PlaceBy::Key, regions, pins: Vec::new() };
    let ring = Arc::new(Ring::build(&spec).unwrap());
    let mut keys: BTreeMap<Vec<RegionName>, KeyId> = BTreeMap::new();
    for number in 0..200 {
        let id = KeyId::new(Tenant::parse("t").unwrap(), Key::parse(&format!("k{number}")).unwrap());
        keys.entry(ring.order(&id).names().cloned().collect()).or_insert(id);
    }
    (ring, keys.into_values().collect())
}

impl Parts {
    /// Three regions, or two and a witness; and the number of their first view.
    pub fn new(regions: Site, ppm: u32, slow: bool) -> (Self, ViewId) {
        let all = if regions == 3 { ["a", "b", "c"] } else { ["a", "b", "w"] };
        let names: Vec<RegionName> = all.iter().map(|name| RegionName::parse(name).unwrap()).collect();
        let (ring, keys) = ring(&names[..usize::from(regions)]);
        let voters = names.iter().cloned().zip((0..).map(register_id)).collect();
        let parts = Self { names, regions, ppm, slow, keys, ..Self::default() };
        let content = View::founding(1, ring, BTreeMap::new(), voters).content();
        let first = parts.view(&View::from_content(Content { longest_lease: TTL, ..content }));
        (parts, first)
    }

    pub fn drift(&self) -> Drift {
        Drift { ppm: self.ppm, margin: Duration::ZERO }
    }

    /// The present, for texts, and the time after which a moment is just past.
    pub fn past(&self, now: Moment) -> pool::Past {
        pool::Past { now, ticks: self.drift().judge(TTL).as_nanos() as i64 }
    }

    pub fn name(&self, site: Site) -> &RegionName {
        &self.names[usize::from(site)]
    }

    pub fn site(&self, name: &RegionName) -> Site {
        let place = self.names.iter().position(|known| known == name);
        place.unwrap_or_else(|| panic!("{name} is not in this world")) as Site
    }

    pub fn view(&self, view: &View) -> ViewId {
        self.views.id(&pool::view(view), || view.clone())
    }

    pub fn named(&self, view: &str) -> u32 {
        self.views.id(view, || panic!("a view that nobody made: {view}"))
    }

    pub fn ballot(&self, of: Ballot) -> register::Ballot {
        let proposer = u64::from(of.by) * 10 + u64::from(of.life);
        register::Ballot { counter: u64::from(of.counter), region: self.name(of.by).clone(), proposer }
    }

    pub fn short(&self, ballot: &register::Ballot) -> Ballot {
        let life = (ballot.proposer % 10) as u8;
        Ballot { counter: ballot.counter as u8, by: self.site(&ballot.region), life }
    }

    pub fn gate(&self, gate: GateState) -> u32 {
        let GateState { view, since, pending, waived } = &gate;
        let since: Vec<ViewId> = since.iter().map(|view| self.view(view)).collect();
        let pending = pending.as_ref().map(|Pending { target, seal }| (self.view(target), *seal));
        let view = self.view(view);
        let key = format!("{view} {since:?} {pending:?} {waived:?}");
        self.gates.id(&key, || Gate { view, state: gate })
    }

    pub fn turn(&self, gate: u32, turn: Turn) -> u32 {
        self.gates_after.get((gate, turn), || {
            let gate = self.gates.get(gate);
            self.gate(match turn {
                Turn::Adopt(view) => gate.state.adopt(self.views.get(view)),
                Turn::Open => gate.state.open(),
                Turn::GiveUp { target, seal } => {
                    let pending = Pending { target: self.views.get(target), seal: Some(seal.into()) };
                    gate.state.give_up(Some(pending))
                }
            })
        })
    }

    fn round(&self, opened: Opened) -> u32 {
        self.rounds.id(&pool::round(&opened.round, &|view| self.named(view)), || opened)
    }

    fn desk(&self, desk: Desk) -> u32 {
        let Desk { acceptor, promised: _, watch, admission, now } = &desk;
        let key = pool::desk(acceptor, watch, admission, self.past(*now), &|view| self.named(view));
        let promised = desk.acceptor.promised.as_ref().map(|promised| self.short(promised));
        self.desks.id(&key, || Desk { promised, ..desk })
    }

    /// An acceptor that no process has watched so far.
    pub fn new_desk(&self, acceptor: Acceptor) -> u32 {
        let mut watch = GrantWatch::new(self.drift());
        watch.observe(&acceptor, BEGIN);
        let admission = Admission::new(self.drift());
        self.desk(Desk { acceptor, promised: None, watch, admission, now: BEGIN })
    }

    pub fn answer(&self, desk: u32, mail: Mail) -> Answer {
        self.answers.get((desk, mail), || {
            let mut desk = (*self.desks.get(desk)).clone();
            let before = desk.acceptor.clone();
            let message = match mail.what {
                What::Prepare(ballot) => Message::Prepare { ballot: self.ballot(ballot) },
                What::Accept(ballot, view) => {
                    Message::Accept { ballot: self.ballot(ballot), view: self.views.get(view) }
                }
                What::Renew(view, _) => Message::Renew {
                    region: self.name(mail.from).clone(),
                    boot: boot(),
                    holder: 1,
                    starts: 1,
                    view: self.views.get(view),
                    ttl: TTL,
                },
                What::Granted => panic!("no acceptor is asked that"),
            };
            let Desk { watch, now, .. } = &desk;
            let over = |region: &RegionName, grant: &register::Grant| watch.is_over(region, grant, *now);
            let (next, reply) = before.answer(Some(register_id(mail.id)), &message, &over);
            let mut sound = true;
            if let Some(next) = next {
                let accepted = next.accepted.as_ref().map(|accepted| &accepted.ballot);
                let kept = before.accepted == next.accepted || accepted >= before.promised.as_ref();
                sound = before.promised <= next.promised && kept && next.accepted.is_some();
                desk.watch.observe(&next, desk.now);
                desk.acceptor = next;
            }
            Answer { desk: self.desk(desk), said: self.said(&reply), sound }
        })
    }

    fn said(&self, reply: &Reply) -> PeerMessage {
        match reply {
            Reply::Promised(held) => PeerMessage::Promised(self.short(&held.ballot), self.view(&held.view)),
            Reply::Accepted => PeerMessage::Accepted,
            Reply::Outbid(ballot) => PeerMessage::Outbid(ballot.counter as u8),
            Reply::Granted(_) => PeerMessage::Granted,
            Reply::Newer => PeerMessage::Newer,
            Reply::Blocked(_)
            | Reply::NotAdmitted
            | Reply::OtherAcceptor(_)
            | Reply::NotFounded(_)
            | Reply::Holds { .. }
            | Reply::NotGranted(_) => PeerMessage::No,
        }
    }

    fn mails(&self, from: Site, ballot: Ballot, outbox: Outbox) -> Vec<Mail> {
        let mail = |(name, id, message): (RegionName, AcceptorId, Message)| {
            let what = match &message {
                Message::Prepare { .. } => What::Prepare(ballot),
                Message::Accept { view, .. } => What::Accept(ballot, self.view(view)),
                other => panic!("no round sends {other:?}"),
            };
            Mail { from, to: self.site(&name), id: short_id(id), what }
        };
        outbox.into_iter().map(mail).collect()
    }

    /// Opens a round for `wanted`. With 0, the round finishes another one's proposal.
    pub fn open_round(&self, ballot: Ballot, base: ViewId, wanted: ViewId) -> (u32, Vec<Mail>) {
        self.opened.get((ballot, base, wanted), || {
            let wanted = (wanted > 0).then(|| self.views.get(wanted));
            let (round, outbox) = Round::open(self.ballot(ballot), self.views.get(base), wanted);
            (self.round(Opened { round, ballot }), self.mails(ballot.by, ballot, outbox))
        })
    }

    /// The round after a reply.
    pub fn round_heard(&self, round: u32, from: Site, id: u8, said: PeerMessage) -> Heard {
        self.heard.get((round, from, id, said), || {
            let mut opened = (*self.rounds.get(round)).clone();
            let ballot = opened.ballot;
            let reply = match said {
                PeerMessage::Promised(ballot, view) => Reply::Promised(register::Accepted {
                    ballot: self.ballot(ballot),
                    view: self.views.get(view),
                }),
                PeerMessage::Accepted => Reply::Accepted,
                said => panic!("no round hears {said:?}"),
            };
            let (mails, chosen) = match opened.round.heard(self.name(from), register_id(id), &reply) {
                Step::Wait | Step::Blocked(_) | Step::Outbid(_) => (Vec::new(), 0),
                Step::Send(outbox) => (self.mails(ballot.by, ballot, outbox), 0),
                Step::Chosen(view) => (Vec::new(), self.view(&view)),
            };
            (self.round(opened), mails, chosen)
        })
    }

    /// True if those acceptors, as bits of their ids, are majorities of the view's voters and of
    /// the voters before.
    pub fn is_agreed(&self, view: ViewId, by: u8) -> bool {
        self.agreed.get((view, by), || {
            let view = self.views.get(view);
            let majorities = |voters: &BTreeMap<RegionName, AcceptorId>| {
                let agree = voters.values().filter(|id| by >> short_id(**id) & 1 == 1).count();
                agree >= majority(voters.len())
            };
            majorities(view.voters()) && majorities(&view.voters_before)
        })
    }

    pub fn loses(&self, before: ViewId, after: ViewId, region: Site) -> bool {
        self.loses.get((before, after, region), || {
            self.views.get(before).loses(&self.views.get(after), self.name(region))
        })
    }

    pub fn tick_desk(&self, desk: u32) -> u32 {
        self.ticked_desks.get(desk, || {
            let desk = (*self.desks.get(desk)).clone();
            self.desk(Desk { now: desk.now + TICK, ..desk })
        })
    }

    /// The keys that a region may run now, as bits.
    pub fn may_run(&self, gate: u32, holder: u32, me: Site) -> u8 {
        self.runs.get((gate, holder, me), || {
            let state = self.gates.get(gate).state.clone();
            let Holder { lease, now, .. } = &*self.holders.get(holder);
            let known = Arc::new(self.snapshot(state.view.clone(), Some(state), lease, me));
            let runs = |id: &KeyId| matches!(known.here(id, *now), Here::Run(_));
            self.keys.iter().enumerate().map(|(bit, id)| u8::from(runs(id)) << bit).sum()
        })
    }

    /// The knowledge of a region's process whose gate follows the newest view that it knows.
    pub fn snapshot(&self, view: Arc<View>, state: Option<GateState>, lease: &Lease, me: Site) -> Snapshot {
        let boot = Boot { system: 1, timeline: 1, started: 1 };
        let (version, epoch) = (GateVersion(1), view.epoch());
        let gate = authority::Gate { version, epoch, state, approved: Some(boot.clone()), running: boot };
        let me = Origin { region: self.name(me).clone(), generation: 1 };
        let site = snapshot::Site { me, lease: TTL, drift: self.drift(), speaks: Versions::OURS };
        let mut known = Snapshot::first(site, view, StoreHealth::Open(gate), lease);
        known.take_lease(lease);
        known
    }

    /// By every judge's clock, the grants of a lease outlive it at a majority.
    pub fn outlives(&self, holder: u32, desks: [u32; 3], of: Site) -> bool {
        self.outlives.get((holder, desks, of), || {
            let Holder { lease, now, .. } = &*self.holders.get(holder);
            let Some(held) = lease.current().filter(|held| *now < held.until) else { return true };
            let left = now.until(held.until);
            let left = if self.slow { left.min(TICK) } else { left };
            let backs = |(site, desk): (usize, u32)| {
                let desk = self.desks.get(desk);
                let voters = held.view.voters();
                if voters.get(&self.names[site]) != Some(&desk.acceptor.id) {
                    // A new acceptor is silent for longer than the grant that it forgot.
                    return true;
                }
                let grant = desk.acceptor.grants.get(self.name(of));
                grant.is_some_and(|grant| {
                    let over = desk.watch.over_at(self.name(of), grant);
                    over.is_none_or(|over| desk.now.until(over) >= left)
                })
            };
            let all = desks.into_iter().enumerate();
            all.filter(|desk| backs(*desk)).count() >= majority(held.view.voters().len())
        })
    }

    /// The view that a reader of all acceptors takes for chosen; 0 if there is none.
    pub fn read(&self, desks: [u32; 3]) -> ViewId {
        self.reads.get(desks, || {
            let desks: Vec<Arc<Desk>> = desks.into_iter().map(|desk| self.desks.get(desk)).collect();
            let reported =
                self.names.iter().zip(&desks).filter_map(|(name, desk)| {
                    Some((name, desk.acceptor.id, desk.acceptor.accepted.as_ref()?))
                });
            chosen(reported).map_or(0, |accepted| self.view(&accepted.view))
        })
    }

    /// A process that just started beside its acceptor, without observations.
    pub fn watch_anew(&self, desk: u32) -> u32 {
        self.anew.get(desk, || self.new_desk(self.desks.get(desk).acceptor.clone()))
    }

    pub fn admit(&self, desk: u32, me: Site, newest: &Arc<View>) -> u32 {
        let mut desk = (*self.desks.get(desk)).clone();
        if let Some(next) = desk.admission.due(&desk.acceptor, self.name(me), newest, desk.now) {
            desk.watch.observe(&next, desk.now);
            desk.acceptor = next;
        }
        self.desk(desk)
    }
}

/// The id of the acceptor of a site. That of a new acceptor is three higher.
pub fn register_id(id: u8) -> AcceptorId {
    AcceptorId(u128::from(id) + 1)
}

pub fn short_id(id: AcceptorId) -> u8 {
    id.0 as u8 - 1
}

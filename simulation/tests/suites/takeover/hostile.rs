//! Hostile peers: well-formed messages of a stranger, a witness, a region that left, and a member,
//! against real gateways.
//! `protocol::{speakers, bounds, confirm}` have the rules. Each message travels as any other: a
//! forbidden one is refused before it is handled.

use std::cell::Cell;
use std::sync::Once;

use onceway::ports::authority::{Lodged, Lodging};
use onceway::ports::peers::PeerError;
use onceway::ports::store::Terms;
use onceway::ports::{Authority, Dice, Peers};
use onceway::protocol::bounds::{AHEAD, LEAP};
use onceway::protocol::digest::digest;
use onceway::protocol::speakers::Kind;
use onceway::protocol::view::Content;
use onceway_lab::contract::escrow::lodging_of;
use simulation::dice::SimDice;

use super::trio::*;

const WITHIN: Duration = ms(3_000);
const MESSAGES: usize = 400;

fn mallory() -> RegionName {
    region("mallory")
}

fn prepare(region: RegionName, counter: u64) -> Question {
    let ballot = Ballot { counter, region, proposer: 1 };
    Question::Acceptor { to: None, message: Message::Prepare { ballot } }
}

fn poison(view: &View, epoch: u64) -> Arc<View> {
    let mut content = Content { epoch, ..view.content() };
    content.members.values_mut().for_each(|member| member.standing = Standing::Sealed { drained: true });
    Arc::new(View::from_content(content))
}

fn lodging(id: KeyId, origin: Origin, token: Token, nonce: Nonce) -> Lodging {
    let mut lodging = lodging_of(id, origin, token, nonce);
    lodging.terms = Terms {
        hold: LEASE,
        lifetime: Lifetime { retention: Retention::For(LEASE), skew: LEASE, tombstone: LEASE },
        route: Arc::from("strict"),
        path: "/strict".to_owned(),
        ..lodging.terms
    };
    lodging
}

struct Hostile {
    dice: SimDice,
    name: RegionName,
    view: Arc<View>,
}

impl Hostile {
    fn pick<T: Clone>(&self, of: &[T]) -> T {
        of[self.dice.bits() as usize % of.len()].clone()
    }

    fn number(&self, near: u64) -> u64 {
        let far =
            [0, near, near + 1, near + 2, AHEAD, AHEAD + near, LEAP + near, 1 << 62, u64::MAX - 1, u64::MAX];
        self.pick(&far)
    }

    fn span(&self) -> Duration {
        self.pick(&[Duration::ZERO, ms(1), LEASE, LEASE * 20, Duration::from_secs(u64::MAX), Duration::MAX])
    }

    fn region(&self) -> RegionName {
        self.pick(&[a(), b(), c(), witness(), mallory(), self.name.clone()])
    }

    fn origin(&self) -> Origin {
        Origin { region: self.region(), generation: self.pick(&[0, 1, 2, u32::MAX]) }
    }

    fn ballot(&self) -> Ballot {
        let region = self.pick(&[self.name.clone(), self.region()]);
        Ballot { counter: self.number(3), region, proposer: self.dice.bits() }
    }

    fn a_view(&self) -> Arc<View> {
        let mut content = Content { epoch: self.number(self.view.epoch()), ..self.view.content() };
        for member in content.members.values_mut() {
            let lost = Standing::Lost { at: self.number(1), gap: self.pick(&[true, false]) };
            let all = [member.standing, Standing::Serving, Standing::Sealed { drained: true }, lost];
            member.standing = self.pick(&all);
            member.mark = self.pick(&[member.mark, self.number(9)]);
        }
        if self.pick(&[true, false]) {
            content.voters = [(self.name.clone(), AcceptorId(7))].into();
            content.voters_before = content.voters.clone();
        }
        Arc::new(View::from_content(content))
    }

    fn message(&self) -> Message {
        let (ballot, view) = (self.ballot(), self.a_view());
        match self.dice.bits() % 6 {
            0 => Message::Read,
            1 => Message::Prepare { ballot },
            2 => Message::Accept { ballot, view },
            3 => {
                let region = self.pick(&[self.name.clone(), self.region()]);
                let (boot, ttl) = (digest("hostile", &[]), self.span());
                Message::Renew { region, boot, holder: 1, starts: 1, view, ttl }
            }
            4 => Message::Force { ballot, view },
            _ => Message::Found { ballot, view },
        }
    }

    fn token(&self) -> Token {
        Token { epoch: self.number(1), attempt: self.pick(&[0, 1, u32::MAX]) }
    }

    fn question(&self) -> Question {
        let key = id(&format!("hostile-{}", self.dice.bits() % 8));
        let (token, nonce) = (self.token(), self.dice.nonce());
        match self.dice.bits() % 12 {
            0..3 => {
                let ids: Vec<AcceptorId> = self.view.voters().values().copied().collect();
                let to = self.pick(&[None, Some(self.pick(&ids)), Some(AcceptorId(1))]);
                Question::Acceptor { to, message: self.message() }
            }
            3 => Question::Views { after: self.number(1) },
            4 => Question::Adopt { view: self.a_view() },
            5 => Question::Release { target: self.a_view() },
            6 => Question::Frontier { origin: self.origin(), at: self.number(1) },
            7 => Question::Rows { origin: self.origin(), after: Some(key), most: u32::MAX },
            8 => {
                let hold = self.pick(&[ms(0), ms(1), LEASE]);
                let mut lodging = Box::new(lodging(key, self.origin(), token, nonce));
                lodging.terms.hold = hold;
                Question::Lodge(lodging)
            }
            9 => {
                let answer = Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(Vec::new()) };
                Question::LodgeAnswer { attempt: Attempt { id: key, token, nonce }, answer: Arc::new(answer) }
            }
            10 => Question::Void(Attempt { id: key, token, nonce }),
            _ => {
                let (actor, reason) = ("mallory".to_owned(), "none".to_owned());
                Question::AcceptRisk { region: self.region(), at: self.number(1), actor, reason }
            }
        }
    }
}

/// The panics of this thread, on which every task of a play runs.
struct Panics(usize);

thread_local! { static SEEN: Cell<usize> = const { Cell::new(0) }; }

impl Panics {
    fn watch() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let tells = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                SEEN.set(SEEN.get() + 1);
                tells(panic);
            }));
        });
        Self(SEEN.get())
    }

    fn seen(&self) -> usize {
        SEEN.get() - self.0
    }
}

/// Sends random messages to all of these. A gateway that refuses does so before it acts, and none
/// panics.
async fn speaks(trio: &Trio, name: &RegionName, to: &[RegionName], seed: u64, may: bool) {
    let hostile = Hostile { dice: SimDice::new(seed, 99), name: name.clone(), view: trio.gate(&to[0]).view };
    let peers = trio.world.network.peers(name);
    let mut handled = BTreeSet::new();
    for number in 0..MESSAGES {
        let question = hostile.question();
        let (kind, target) = (question.kind(), &to[number % to.len()]);
        match peers.ask(target, question, WITHIN).await {
            Ok(_) => drop(handled.insert(kind)),
            Err(PeerError::NotSent(_) | PeerError::Unknown(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let open = [Kind::Read, Kind::Views];
    assert!(may || handled.iter().all(|kind| open.contains(kind)), "{name}: {handled:?} were handled");
    assert!(!may || handled.len() > 4, "the fuzz says hardly anything: {handled:?}");
}

#[test]
fn messages_of_strangers_and_witnesses_do_not_affect_takeover() {
    for seed in 0..4 {
        checked(Trio::duo(seed), async |trio| {
            let before = [a(), b()].map(|name| trio.gate(&name));
            for name in [mallory(), witness()] {
                speaks(&trio, &name, &[a(), b()], seed, false).await;
                let ping = trio.world.network.peers(&name).ping(&a(), WITHIN).await;
                assert!(matches!(ping, Err(PeerError::NotSent(_))), "{name}: {ping:?}");
            }
            assert_eq!([a(), b()].map(|name| trio.gate(&name)), before);
            let key = key_under(&before[0].view, &a(), Some(&b()), "after");
            trio.lose(&a());
            assert_eq!(trio.insist(&b(), "/park", &key, TAKEOVER).await.by, b().as_str());
        });
    }
}

#[test]
fn messages_of_a_removed_region_change_nothing() {
    for seed in 0..4 {
        checked(Trio::start(seed), async |trio| {
            trio.leave(&a(), &c()).await;
            trio.node(&c()).process.kill();
            let before = [a(), b()].map(|name| trio.gate(&name));
            speaks(&trio, &c(), &[a(), b()], seed, false).await;
            assert_eq!([a(), b()].map(|name| trio.gate(&name)), before);
            let of_a = key_under(&before[0].view, &a(), Some(&b()), "goes-on");
            assert_eq!(trio.insist(&b(), "/park", &of_a, TAKEOVER).await.by, a().as_str());
        });
    }
}

/// A member that lies can do what a member may. No numbers in its messages make a gateway or a
/// witness panic, in a loop or in an answer, and each loop of each gateway goes on.
#[test]
fn no_message_of_a_member_panics_a_gateway_or_a_witness() {
    for seed in 0..6 {
        on(Trio::witnessed(seed, vec![witness()]), async |trio| {
            trio.node(&c()).process.kill();
            let panics = Panics::watch();
            speaks(&trio, &c(), &[a(), b(), witness()], seed, true).await;
            let beats = async || {
                let mut all = Vec::new();
                for name in [a(), b()] {
                    let gateway = trio.gateway(&name);
                    assert_eq!(gateway.dead_loop(), None, "a loop of {name} died");
                    all.push(gateway.pong().await.beat.map_or(0, |beat| beat.seq));
                }
                all
            };
            let before = beats().await;
            sleep(ms(2_000)).await;
            let after = beats().await;
            assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?} {after:?}");
            let read = Question::Acceptor { to: None, message: Message::Read };
            let reply = trio.world.network.peers(&a()).ask(&witness(), read, WITHIN).await;
            assert!(matches!(reply, Ok(PeerReply::Acceptor(_))), "{reply:?}");
            assert_eq!(panics.seen(), 0, "a task of a gateway or of the witness panicked");
        });
    }
}

/// a lodges for another store of its region, an older one or a future one. Kept under that name,
/// the claim would be no record once a is lost. Its absence would then prove that nothing was sent
/// (docs/protocol.md#rule-37).
#[test]
fn a_claim_naming_another_store_is_not_lodged() {
    on(Trio::start(11), async |trio| {
        let (view, peers) = (trio.gate(&b()).view, trio.world.network.peers(&a()));
        let lodged = async |word: &str, generation: u32| {
            let (id, origin) = (id(&key_of(&a(), &b(), word)), Origin { region: a(), generation });
            let token = Token { epoch: view.epoch(), attempt: 1 };
            let lodging = lodging(id, origin, token, Nonce(u128::from(generation)));
            peers.ask(&b(), Question::Lodge(Box::new(lodging)), WITHIN).await.unwrap()
        };
        for generation in [0, 2, u32::MAX] {
            let reply = lodged("forged", generation).await;
            trio.check();
            assert!(
                matches!(&reply, PeerReply::Refused(why) if why.contains("of another origin")),
                "generation {generation}: {reply:?}"
            );
        }
        assert_eq!(lodged("own", 1).await, PeerReply::Lodged(Lodged::Done), "nothing else was wrong with it");
    });
}

/// c has read the token and the nonce of an attempt of b, whose key it was then and is not now.
#[test]
fn no_region_can_end_another_regions_attempt() {
    on(Trio::start(13), async |trio| {
        let key = key_of(&b(), &c(), "spied");
        trio.upstream(&b(), UpstreamMode::EffectThenDrop);
        assert_eq!(trio.send(&b(), "/park", &key).await.status, 504);
        trio.drain(&c(), &b(), true).await.unwrap();
        let store = trio.world.cluster.store(&b());
        let row = async || store.look_up(&[id(&key)]).await.unwrap().concat().remove(0);
        let Row { token, nonce, .. } = row().await;
        trio.until("the drain", ms(10_000), async || trio.gate(&b()).view.epoch() > token.epoch).await;
        let (peers, id) = (trio.world.network.peers(&c()), id(&key));
        let answer = Arc::new(Answer { status: 200, headers: Vec::new(), body: AnswerBody::NotKept });
        let attempt = Attempt { id, token, nonce };
        let forged = Question::LodgeAnswer { attempt: attempt.clone(), answer };
        for question in [forged, Question::Void(attempt)] {
            peers.ask(&b(), question, WITHIN).await.unwrap();
            assert!(matches!(row().await.state, State::InDoubt { .. }));
        }
    });
}

/// The two letters that stopped a whole fleet: a view that nobody agreed on, and a ballot that
/// nobody can follow.
#[test]
fn a_region_ignores_lone_letters_and_unbounded_ballots() {
    checked(Trio::start(7), async |trio| {
        let (view, peers) = (trio.gate(&b()).view, trio.world.network.peers(&a()));
        for epoch in [view.epoch() + 1, view.epoch() + 2, LEAP, 9_000_000_000_000_000_000, u64::MAX] {
            for to in [b(), c()] {
                let reply = peers.ask(&to, Question::Adopt { view: poison(&view, epoch) }, WITHIN).await;
                assert_eq!(reply, Ok(PeerReply::Adopted(view.epoch())), "epoch {epoch}");
            }
        }
        for to in [b(), c()] {
            for counter in [AHEAD + 1_000, 1 << 62, u64::MAX] {
                let reply = peers.ask(&to, prepare(a(), counter), WITHIN).await;
                assert!(
                    matches!(&reply, Ok(PeerReply::Refused(why)) if why.contains("out") || why.contains("ahead")),
                    "{reply:?}"
                );
            }
            let views = peers.ask(&to, Question::Views { after: u64::MAX }, WITHIN).await;
            assert_eq!(views, Ok(PeerReply::Views(Vec::new())));
            let forged = peers.ask(&to, prepare(c(), 9), WITHIN).await;
            assert!(
                matches!(&forged, Err(PeerError::NotSent(why)) if why.contains("in the name of")),
                "{forged:?}"
            );
        }
        let forward = crate::shared::forward("/park", "charge");
        let sent = trio.world.network.peers(&mallory()).forward(&b(), forward).await;
        assert!(matches!(sent, Err(PeerError::NotSent(_))), "a stranger ran a charge");
        let key = key_of(&a(), &b(), "right-after");
        trio.lose(&a());
        assert_eq!(trio.insist(&b(), "/park", &key, TAKEOVER).await.by, b().as_str());
    });
}

/// No letter reaches c, and none of its peers sends it views. Several epochs later it learns the
/// chosen views from the reports of a majority.
#[test]
fn a_region_without_letters_learns_views_by_reading() {
    checked(Trio::start(8), async |trio| {
        let network = &trio.world.network;
        for other in [a(), b()] {
            network.set_letters(&other, &c(), Letter::Adopt, Some(Post::Lost));
            network.set_letters(&c(), &other, Letter::Views, Some(Post::Lost));
        }
        let first = trio.gate(&c()).view.epoch();
        trio.drain(&a(), &b(), false).await.unwrap();
        let follows =
            async || trio.gate(&c()).view == trio.gate(&a()).view && trio.gate(&c()).view.epoch() > first;
        trio.until("c reads what was chosen", ms(10_000), follows).await;
        [a(), b()].iter().for_each(|other| network.set_letters(&c(), other, Letter::Views, None));
        trio.cut_off(&c(), true);
        let behind = trio.gate(&c()).view.epoch();
        trio.until_lost(&c(), &a()).await;
        trio.ask(async || trio.gateway(&a()).resume(&b(), "test").await).await.unwrap();
        trio.cut_off(&c(), false);
        let caught_up = async || trio.gate(&c()).view.epoch() >= behind + 2;
        trio.until("c knows them all", ms(10_000), caught_up).await;
        trio.all_home(ms(60_000)).await;
    });
}

/// Lets a region's acceptor promise what nothing can follow. Returns its store.
async fn promises_too_much(trio: &Trio, at: &RegionName) -> SimStore {
    let store = trio.world.cluster.store(at);
    let (version, acceptor) = store.acceptor().await.unwrap();
    let promised = Some(Ballot { counter: u64::MAX, region: c(), proposer: u64::MAX });
    store.set_acceptor(version, &Acceptor { promised, ..acceptor }).await.unwrap();
    store
}

/// Everything is poisoned as it was before bounds existed: promises that nothing can follow, gates
/// in an epoch that nobody agreed on.
#[test]
fn a_poisoned_register_is_left_by_breaking_the_glass() {
    on(Trio::start(9), async |trio| {
        let view = trio.gate(&a()).view;
        let bad = poison(&view, 9_000_000_000_000_000_000);
        for name in regions() {
            let store = promises_too_much(&trio, &name).await;
            let gate = store.gate().await.unwrap();
            store.set_gate(gate.version, &gate.state.unwrap().adopt(bad.clone())).await.unwrap();
        }
        sleep(LEASE * 4).await;
        let key = key_of(&a(), &b(), "poisoned");
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 503, "nobody serves");
        let gateway = trio.gateway(&a());
        refused(
            gateway.leave_poison(77, &BTreeSet::new(), "ann", "").await,
            "refused",
            "no view of epoch 77",
        );
        let epoch = gateway.leave_poison(view.epoch(), &BTreeSet::new(), "ann", "OPS-14").await.unwrap();
        assert!(epoch > bad.epoch());
        assert_eq!(trio.insist(&c(), "/park", &key, ms(30_000)).await.by, a().as_str());
        let noted = trio.world.cluster.notes(&a());
        assert!(noted.iter().any(|entry| entry.kind == "glass-broken"), "{noted:?}");
        for name in [b(), c()] {
            let (_, acceptor) = trio.world.cluster.store(&name).acceptor().await.unwrap();
            assert!(acceptor.promised.unwrap().counter < AHEAD, "a ballot can follow it");
        }
        trio.lose(&c());
        let gained = key_of(&c(), &a(), "then-lost");
        assert_eq!(trio.insist(&a(), "/park", &gained, ms(30_000)).await.by, a().as_str());
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// Only promises are poisoned: all regions serve, no change can be agreed on, and who asks for one
/// hears why.
#[test]
fn a_poisoned_register_tells_the_proposer_so() {
    on(Trio::start(12), async |trio| {
        let epoch = trio.gate(&a()).view.epoch();
        for name in regions() {
            promises_too_much(&trio, &name).await;
        }
        let gateway = trio.gateway(&a());
        refused(gateway.drain(&b(), false, "ann", "").await, "not-yet", "out of bounds");
        assert!(trio.serves(&b()));
        gateway.leave_poison(epoch, &BTreeSet::new(), "ann", "OPS-14").await.unwrap();
        trio.drain(&a(), &b(), false).await.unwrap();
    });
}

#[test]
fn an_agreed_view_is_no_poison() {
    on(Trio::start(10), async |trio| {
        let first = trio.gate(&a()).view.epoch();
        trio.drain(&a(), &b(), false).await.unwrap();
        refused(
            trio.gateway(&a()).leave_poison(first, &BTreeSet::new(), "ann", "").await,
            "refused",
            "follows",
        );
    });
}

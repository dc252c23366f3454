//! Lies in the *answers* of a region that left the ring, or is about to: forged views, heartbeats
//! that nobody wrote, and rows that it does not have.
//!
//! The liar answers in the place of a genuine region, and all else is real.

use onceway::ports::authority::CopiedRow;
use onceway::ports::peers::{Beat, PeerMessage};
use onceway::protocol::change::STRIDE;
use onceway::protocol::examples;
use onceway::protocol::opening;
use onceway::protocol::register::Reply;
use onceway::protocol::time::Date;

use super::trio::*;

/// A number that no region has counted to, and that is within bounds.
const FAR: u64 = 1 << 62;
const ACCEPTOR: AcceptorId = AcceptorId(77);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Every heartbeat of every store is far ahead, in replies to pings.
    Heartbeats,
    /// The same with the largest number that there is, and so is the epoch.
    BeyondBounds,
    /// No heartbeat of any other region was ever seen but the first, in replies to pings.
    Forgetful,
    /// The glass is broken, and the liar alone votes.
    Glass,
    /// Rows of any store have arrived, as far as anybody may ask, and there are none. Replies to
    /// pings are honest.
    Rows,
    /// The same, and there is always a further page of them.
    Endless,
    /// The same, and each page is the first one.
    Again,
}

struct Liar {
    honest: Arc<dyn Region>,
    lie: Lie,
    origins: Vec<Origin>,
    forged: Arc<View>,
    pages: Pages,
}

/// The keys behind which pages were asked for, in their order.
type Pages = Arc<Mutex<Vec<Option<KeyId>>>>;

impl Region for Liar {
    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        self.honest.hears(from, said)
    }

    fn forward(&self, from: RegionName, forward: Forward) -> Answering<'_, ForwardReply> {
        self.honest.forward(from, forward)
    }

    fn pong(&self) -> Answering<'_, Pong> {
        Box::pin(async move {
            let pong = self.honest.pong().await;
            let all = |number: u64| self.origins.iter().map(|origin| (origin.clone(), number)).collect();
            let beat = |seq| Some(Beat { seq, age: ms(0) });
            match self.lie {
                Lie::Heartbeats => Pong { beat: beat(FAR), applied: all(FAR), heard: all(FAR), ..pong },
                Lie::BeyondBounds => {
                    let (applied, heard) = (all(u64::MAX), all(u64::MAX));
                    Pong { epoch: u64::MAX, beat: beat(u64::MAX), applied, heard, ..pong }
                }
                Lie::Forgetful => Pong { applied: all(1), heard: all(1), ..pong },
                Lie::Glass => Pong { epoch: self.forged.epoch(), view: self.forged.digest(), ..pong },
                Lie::Rows | Lie::Endless | Lie::Again => pong,
            }
        })
    }

    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, PeerReply> {
        match (self.lie, &question) {
            (Lie::Glass, Question::Views { .. }) => {
                Box::pin(async { PeerReply::Views(vec![self.forged.clone()]) })
            }
            (Lie::Glass, Question::Acceptor { message: Message::Read, .. }) => Box::pin(async {
                let ballot = Ballot { counter: 9, region: c(), proposer: 9 };
                let accepted = Accepted { ballot: ballot.clone(), view: self.forged.clone() };
                let (id, promised, running) = (ACCEPTOR, Some(ballot), BTreeSet::new());
                PeerReply::Acceptor(Reply::Holds { id, promised, accepted, running })
            }),
            (Lie::Rows | Lie::Endless | Lie::Again, Question::Frontier { .. }) => {
                Box::pin(async { PeerReply::Frontier(opening::Frontier { applied: FAR, seal: 0 }) })
            }
            (Lie::Endless | Lie::Again, Question::Rows { origin, after, .. }) => {
                let mut pages = self.pages.lock().unwrap();
                let number = if self.lie == Lie::Endless { pages.len() } else { 0 };
                pages.push(after.clone());
                let row = unwritten(origin, &format!("page-{number:09}"));
                Box::pin(async { PeerReply::Rows(vec![row]) })
            }
            (Lie::Rows, Question::Rows { .. }) => Box::pin(async { PeerReply::Rows(Vec::new()) }),
            _ => self.honest.ask(from, question),
        }
    }
}

fn unwritten(origin: &Origin, key: &str) -> CopiedRow {
    let fingerprint = Fingerprint { raw: raw("POST", "/park", b""), canonical: None };
    let row = examples::row(origin.clone(), Token { epoch: 1, attempt: 1 }, 1, State::Released);
    let row = Row { fingerprint, expires: Date(4_000_000_000_000), ..row };
    let (hold, lives, tombstone) = (ms(1), TAKEOVER, TAKEOVER);
    CopiedRow { id: id(key), row, hold, lives, tombstone, route: "park".into(), path: "/park".to_owned() }
}

fn forged(view: &View) -> Arc<View> {
    let mut content = view.content();
    content.epoch += 2 * STRIDE;
    content.voters = [(c(), ACCEPTOR)].into();
    content.voters_before = content.voters.clone();
    Arc::new(View::from_content(content))
}

/// Three regions and a witness. c has left the ring; the files still name it. `before` is done
/// while it is in the ring.
async fn left(seed: u64, before: impl AsyncFnOnce(&Trio)) -> Arc<Trio> {
    let trio = Trio::witnessed(seed, vec![witness()]).await;
    before(&trio).await;
    trio.leave(&a(), &c()).await;
    trio
}

/// From now on c lies. Returns the pages that it is asked for.
fn lies(trio: &Trio, lie: Lie) -> Pages {
    let node = trio.node(&c());
    let origins = trio.names.iter().map(|name| trio.world.cluster.origin(name)).collect();
    let forged = forged(&trio.gate(&a()).view);
    let pages = Pages::default();
    let liar = Liar { honest: Arc::new(node.gateway), lie, origins, forged, pages: Arc::clone(&pages) };
    trio.world.network.plug_process(c(), Arc::new(liar), node.process);
    pages
}

#[test]
fn answers_of_a_removed_region_do_not_affect_takeover() {
    for (seed, lie) in (20..).zip([Lie::Heartbeats, Lie::BeyondBounds, Lie::Glass, Lie::Rows]) {
        checked(left(seed, async |_| {}), async |trio| {
            lies(&trio, lie);
            let before = [a(), b()].map(|name| trio.gate(&name).view);
            sleep(ms(4_000)).await;
            assert_eq!([a(), b()].map(|name| trio.gate(&name).view), before, "{lie:?}");
            assert!(trio.serves(&a()) && trio.serves(&b()), "{lie:?}: both go on");
            let key = key_under(&before[0], &a(), Some(&b()), "after");
            trio.lose(&a());
            assert_eq!(trio.insist(&b(), "/park", &key, TAKEOVER).await.by, b().as_str(), "{lie:?}");
        });
    }
}

/// Four regions; c has left. a's store becomes an old copy, and b's memory of it is as old. d
/// knows better and is silent. b and the liar are no quorum, so d must answer.
#[test]
fn a_removed_region_cannot_approve_an_old_copy() {
    on(Trio::quartet(32), async |fleet| {
        fleet.leave(&a(), &c()).await;
        lies(&fleet, Lie::Forgetful);
        fleet.world.cut(&a(), &b(), true, ONE_WAY);
        sleep(ms(200)).await;
        let copied = fleet.world.cluster.copy(&a());
        sleep(ms(2_000)).await;
        fleet.node(&a()).process.kill();
        fleet.world.cluster.restore(&a(), copied);
        fleet.world.cluster.promote(&a());
        // Calls pass again. Rows do not, else b would know better, too.
        fleet.link(&a(), &b(), LinkMode::Up);
        fleet.cut_off(&d(), true);
        fleet.begin_process(&a());
        let reasons = || fleet.gateway(&a()).readiness().reasons.join("; ");
        sleep(ms(1_000)).await;
        for _ in 0..80 {
            sleep(ms(100)).await;
            let why = reasons();
            assert!(why.contains("2 peers must say") || why.contains("have not answered yet"), "{why}");
        }
        fleet.cut_off(&d(), false);
        fleet.until("d exposes it", ms(5_000), async || reasons().contains("went back")).await;
    });
}

/// The state in which c has the only trace of a key that a ran: no row of a reaches b any more.
async fn only_c_has_rows(seed: u64) -> (Arc<Trio>, String) {
    let key = std::sync::OnceLock::new();
    let trio = left(seed, async |trio| {
        let key = key.get_or_init(|| key_under(&trio.gate(&a()).view, &a(), Some(&b()), "only-c"));
        trio.hold(&a(), &[b()], true);
        assert_eq!(trio.insist(&a(), "/park", key, ms(5_000)).await.by, a().as_str());
    })
    .await;
    (trio, key.into_inner().unwrap())
}

/// The hindrances of b that name c as a region that left, once a is lost.
async fn left_ring(trio: &Trio) -> Vec<String> {
    trio.lose_before(&a(), &b()).await;
    sleep(TAKEOVER * 3).await;
    assert!(!trio.gate(&b()).is_open(), "a region that left opened what is not proven");
    let opening = trio.gateway(&b()).authority_status().opening;
    let missed = opening.into_iter().filter(|missing| missing.what == "left-ring");
    missed.filter(|missing| missing.needs_operator).map(|missing| missing.text).collect()
}

/// A liar says to have all rows and gives none. b does not run a's key before an operator accepts
/// the risk, and then says that it is at risk.
#[test]
fn a_removed_regions_word_about_rows_opens_nothing() {
    play(async {
        let (trio, key) = only_c_has_rows(30).await;
        lies(&trio, Lie::Rows);
        let missed = left_ring(&trio).await;
        assert!(missed.len() == 1 && missed[0].contains("put it back into the ring"), "{missed:?}");
        assert_eq!(trio.send(&b(), "/park", &key).await.status, 503);
        assert_eq!(trio.effects(&key).len(), 1, "a's");
        trio.gateway(&b()).takeover(&a(), true, "ann", "c is a liar").await.unwrap();
        assert_eq!(trio.insist(&b(), "/park", &key, TAKEOVER).await.by, b().as_str());
        let risk: BTreeSet<RegionName> = trio.risk(&key).into_iter().collect();
        assert_eq!(risk, [a()].into(), "an operator accepted a second effect, and it is told");
    });
}

/// The way out that costs nothing: the region is put back into the ring. Then its word counts.
#[test]
fn a_region_that_rejoins_hands_over_its_unique_rows() {
    play(async {
        let (trio, key) = only_c_has_rows(31).await;
        assert_eq!(left_ring(&trio).await.len(), 1);
        trio.apply(&b(), ring(&[(a(), 100), (b(), 100), (c(), 100)])).await.unwrap();
        trio.until("b has opened", TAKEOVER, async || trio.gate(&b()).is_open()).await;
        assert_eq!(trio.insist(&b(), "/park", &key, TAKEOVER).await.by, a().as_str(), "it is replayed");
        assert_eq!((trio.effects(&key).len(), trio.risk(&key).len()), (1, 0));
        trio.check();
    });
}

/// A member sends pages without an end, or the same one again and again, while b takes over a lost
/// region's keys. Once the liar has left the ring, b asks it no more.
#[test]
fn endless_pages_end_when_their_sender_leaves_the_ring() {
    for (seed, lie) in (34..).zip([Lie::Endless, Lie::Again]) {
        on(Trio::witnessed(seed, vec![witness()]), async |trio| {
            let pages = lies(&trio, lie);
            trio.lose_before(&a(), &b()).await;
            let count = || pages.lock().unwrap().len();
            let asked = async || count() > 100;
            trio.until("b has asked for many pages", TAKEOVER, asked).await;
            trio.drain(&b(), &c(), false).await.unwrap();
            trio.apply(&b(), ring(&[(a(), 100), (b(), 100)])).await.unwrap();
            sleep(ms(1_000)).await;
            let before = count();
            sleep(ms(2_000)).await;
            assert_eq!(count(), before, "{lie:?}");
            let pages = pages.lock().unwrap();
            let mut twice = pages.windows(2).filter(|two| two[0] == two[1]);
            let again = twice.any(|two| two[0].is_some());
            assert!(!again, "{lie:?}: more was asked for behind a page that does not go on");
            assert!(!trio.gate(&b()).is_open(), "{lie:?}: whether c has rows is not known");
        });
    }
}

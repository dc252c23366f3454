//! Lies in the *answers* of a region that left the ring: forged views, and heartbeats that nobody
//! wrote.
//!
//! `hostile.rs` has what it *says*. The liar answers in the place of a genuine region, and all else
//! is real. It must not look into a gateway for
//! facts that a peer or a client can see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::gateway::authority::Failover;
use onceway::ports::peers::{Beat, Forward, ForwardReply, PeerMessage, Pong, Question, Told};
use onceway::protocol::change::STRIDE;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{Accepted, Ballot, Message, Reply};
use onceway::protocol::view::{AcceptorId, View};
use simulation::peers::{Answering, Region};
use tokio::time::sleep;

use super::trio::{Node, TAKEOVER, Trio, a, b, c, key_under, ms, play, witness};

/// A number that no region has counted to, and that is within bounds.
const FAR: u64 = 1 << 62;
/// The acceptor that the liar says to be.
const ACCEPTOR: AcceptorId = AcceptorId(77);

/// The part of the liar's answers that is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Every heartbeat of every store is far ahead, in replies to pings.
    Heartbeats,
    /// The glass is broken, and the liar alone votes.
    Glass,
}

/// A region's gateway that lies.
struct Liar {
    honest: Arc<dyn Region>,
    lie: Lie,
    origins: Vec<Origin>,
    forged: Arc<View>,
}

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
            let all = |number: u64| -> BTreeMap<Origin, u64> {
                self.origins.iter().map(|origin| (origin.clone(), number)).collect()
            };
            let beat = |seq| Some(Beat { seq, age: ms(0) });
            match self.lie {
                Lie::Heartbeats => Pong { beat: beat(FAR), applied: all(FAR), heard: Some(all(FAR)), ..pong },
                Lie::Glass => Pong { epoch: self.forged.epoch(), view: self.forged.digest(), ..pong },
            }
        })
    }

    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, Told> {
        match (self.lie, &question) {
            (Lie::Glass, Question::Views { .. }) => {
                Box::pin(async { Told::Views(vec![self.forged.clone()]) })
            }
            (Lie::Glass, Question::Acceptor { message: Message::Read, .. }) => Box::pin(async {
                let ballot = Ballot { counter: 9, region: c(), proposer: 9 };
                let accepted = Accepted { ballot: ballot.clone(), view: self.forged.clone() };
                let promised = Some(ballot);
                Told::Acceptor(Reply::Holds { id: ACCEPTOR, promised, accepted, running: BTreeSet::new() })
            }),
            _ => self.honest.ask(from, question),
        }
    }
}

/// The view of a broken glass whose only voter is c.
fn forged(view: &View) -> Arc<View> {
    let mut content = view.content();
    content.epoch += 2 * STRIDE;
    content.voters = [(c(), ACCEPTOR)].into();
    content.voters_before = content.voters.clone();
    Arc::new(View::from_content(content))
}

/// Three regions and a witness. c has left the ring; the files still name it, and it lies.
async fn with_a_liar(seed: u64, lie: Lie) -> Arc<Trio> {
    let trio = Trio::start_as(seed, |plain| Failover { witnesses: vec![witness()], ..plain }).await;
    trio.leave(&a(), &c()).await;
    let node = trio.node(&c());
    let origins = [a(), b(), c()].map(|name| trio.world.cluster.origin(&name)).to_vec();
    let forged = forged(&trio.gate(&a()).view);
    let liar = Liar { honest: Arc::new(node.gateway), lie, origins, forged };
    trio.world.network.plug_process(c(), Arc::new(liar), node.process);
    trio
}

/// No store is closed, no view is followed. Once it lies no more, a lost region is taken over.
#[test]
fn whatever_a_region_answers_that_left_no_store_is_closed_and_no_view_is_followed() {
    for (seed, lie) in [(20, Lie::Heartbeats), (21, Lie::Glass)] {
        play(async {
            let trio = with_a_liar(seed, lie).await;
            let before = [a(), b()].map(|name| trio.gate(&name).view);
            sleep(ms(4_000)).await;
            assert_eq!([a(), b()].map(|name| trio.gate(&name).view), before, "{lie:?}");
            assert!(trio.serves(&a()) && trio.serves(&b()), "{lie:?}: both go on");
            let Node { gateway, process, .. } = trio.node(&c());
            trio.world.network.plug_process(c(), Arc::new(gateway), process);
            sleep(ms(2_000)).await;
            let key = key_under(&before[0], &a(), Some(&b()), "after");
            trio.lose(&a());
            let told = trio.insist(&b(), "/park", &key, TAKEOVER).await;
            assert_eq!(told.by, b().as_str(), "{lie:?}");
            trio.check();
        });
    }
}

//! The faults of a swarm, and their mending.
//!
//! `swarm.rs` draws faults. Each is one switch of the world or one act of an operator. It must not
//! leave anything broken after [`Faults::heal`].

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use onceway::protocol::region::RegionName;
use onceway::protocol::view::Standing;
use simulation::cluster::StoreMode;
use simulation::dice::SimDice;
use simulation::upstream::UpstreamMode;
use tokio::time::sleep;

use super::swarm::region;
use super::trio::{LAG, ONE_WAY, Trio, ms, regions, ring};

pub struct Faults {
    trio: Arc<Trio>,
    down: BTreeSet<RegionName>,
    paused: BTreeSet<RegionName>,
}

impl Faults {
    pub fn new(trio: Arc<Trio>) -> Self {
        Self { trio, down: BTreeSet::new(), paused: BTreeSet::new() }
    }

    /// Makes one more fault, or ends one. Returns its description.
    pub fn next(&mut self, dice: &SimDice) -> String {
        let pick = |count: u64| dice.bits() % count;
        let (at, other) = (region(dice), region(dice));
        match pick(20) {
            0..4 if self.down.contains(&at) => {
                self.down.remove(&at);
                self.trio.bring_back(&at);
                format!("{at} is back")
            }
            0..2 => {
                self.down.insert(at.clone());
                self.paused.remove(&at);
                self.trio.lose(&at);
                format!("{at} is lost")
            }
            2..5 => self.cut(&at, &other, pick(3)),
            5..8 => self.mend_links(),
            8 | 9 => self.pause(&at),
            10 | 11 => self.store(&at, pick(4)),
            12 => self.replicate(&at, &other, pick(4)),
            13 | 14 => self.upstream(&at, pick(9)),
            15 => {
                if !self.down.contains(&at) {
                    self.trio.world.cluster.restart(&at);
                }
                format!("the store of {at} restarts")
            }
            16 => {
                if !self.down.contains(&at) {
                    self.trio.node(&at).process.kill();
                    self.paused.remove(&at);
                    self.trio.begin_process(&at);
                }
                format!("the gateway of {at} restarts")
            }
            17 => self.drain(at, other),
            18 => self.resume(at, other),
            _ => self.weigh(at, [pick(3), pick(3), pick(3)]),
        }
    }

    fn cut(&self, at: &RegionName, other: &RegionName, how: u64) -> String {
        match how {
            0 => self.trio.cut_off(at, true),
            1 if at != other => self.trio.world.cut(at, other, true, ONE_WAY),
            2 if at != other => self.trio.world.cut_one_way(at, other, ONE_WAY),
            _ => return "nothing".to_owned(),
        }
        format!("cut {at} {other} {how}")
    }

    fn mend_links(&self) -> String {
        for at in regions() {
            for other in regions().iter().filter(|other| **other != at) {
                let up = !self.down.contains(&at) && !self.down.contains(other);
                if up {
                    self.trio.world.cut(&at, other, false, ONE_WAY);
                }
            }
        }
        "links are mended".to_owned()
    }

    fn pause(&mut self, at: &RegionName) -> String {
        if self.paused.remove(at) {
            self.trio.node(at).process.resume();
            return format!("{at} wakes");
        }
        if !self.down.contains(at) {
            self.trio.node(at).process.pause();
            self.paused.insert(at.clone());
        }
        format!("{at} sleeps")
    }

    fn store(&self, at: &RegionName, how: u64) -> String {
        if self.down.contains(at) {
            return "nothing".to_owned();
        }
        let mode = match how {
            0 => StoreMode::Stall(ms(500)),
            1 => StoreMode::LoseReplies(ms(300)),
            2 => {
                self.trio.world.cluster.set_latency(at, ms(1_500));
                StoreMode::Up
            }
            _ => {
                self.trio.world.cluster.set_latency(at, ms(2));
                StoreMode::Up
            }
        };
        self.trio.world.cluster.set_mode(at, mode);
        format!("store {at} {mode:?} {how}")
    }

    fn replicate(&self, at: &RegionName, other: &RegionName, how: u64) -> String {
        if at != other {
            let delay = [LAG, ms(400), ms(2_500), ms(6_000)][usize::try_from(how).unwrap()];
            self.trio.world.cluster.set_delay(at, other, delay);
        }
        format!("replication {at} {other} {how}")
    }

    fn upstream(&self, at: &RegionName, how: u64) -> String {
        let busy = UpstreamMode::Answer { after: ms(30), status: 429, body: Bytes::new(), effect: false };
        let mode = match how {
            0..4 => UpstreamMode::Receipt { after: ms(50) },
            4 => UpstreamMode::Receipt { after: ms(2_500) },
            5 => UpstreamMode::Refuse,
            6 => UpstreamMode::EffectThenDrop,
            7 => UpstreamMode::DropBeforeEffect,
            _ => busy,
        };
        self.trio.world.upstreams.set_mode(at, mode.clone());
        format!("upstream {at} {mode:?}")
    }

    fn drain(&self, at: RegionName, by: RegionName) -> String {
        let gateway = self.trio.node(&by).gateway;
        let told = format!("{by} drains {at}");
        // The result shows in the views.
        tokio::spawn(async move { gateway.drain(&at, true, "swarm", "a drill").await });
        told
    }

    fn resume(&self, at: RegionName, by: RegionName) -> String {
        let gateway = self.trio.node(&by).gateway;
        let told = format!("{by} resumes {at}");
        tokio::spawn(async move { gateway.resume(&at, "swarm").await });
        told
    }

    fn weigh(&self, by: RegionName, weights: [u64; 3]) -> String {
        let weight = |number: u64| [50, 100, 200][usize::try_from(number).unwrap()];
        let weights: Vec<_> =
            regions().into_iter().zip(weights).map(|(name, number)| (name, weight(number))).collect();
        let told = format!("{by} weighs {weights:?}");
        let gateway = self.trio.node(&by).gateway;
        tokio::spawn(async move {
            let escrow = ["strict", "strict-probe", "strict-alone"].map(Arc::from).into();
            let epoch = gateway.pong().await.epoch;
            gateway.apply(ring(&weights), escrow, epoch, "swarm").await
        });
        told
    }

    /// Mends everything, and gives every region its arcs back.
    pub async fn heal(&mut self) {
        for at in std::mem::take(&mut self.down) {
            self.trio.bring_back(&at);
        }
        for at in std::mem::take(&mut self.paused) {
            self.trio.node(&at).process.resume();
        }
        self.mend_links();
        for at in regions() {
            self.trio.world.cluster.set_mode(&at, StoreMode::Up);
            self.trio.world.cluster.set_latency(&at, ms(2));
            self.trio.world.upstreams.set_mode(&at, UpstreamMode::Receipt { after: ms(50) });
            for other in regions().iter().filter(|other| **other != at) {
                self.trio.world.cluster.set_delay(&at, other, LAG);
            }
        }
        for _ in 0..200 {
            let gateway = self.trio.node(&regions()[0]).gateway;
            let Some(drained) = self.drained() else {
                sleep(ms(5_000)).await;
                match self.drained() {
                    None => return,
                    Some(_) => continue,
                }
            };
            // Refused while something else changes: then again.
            let _ = gateway.resume(&drained, "swarm").await;
            sleep(ms(1_000)).await;
        }
        panic!("a drained region cannot be resumed");
    }

    fn drained(&self) -> Option<RegionName> {
        let view = self.trio.gate(&regions()[0]).view;
        regions().into_iter().find(|name| view.standing(name) == Some(Standing::Sealed { drained: true }))
    }
}

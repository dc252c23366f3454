//! The bench of replication: three private servers of Postgres that follow one another, each link through a relay that can be cut.
//!
//! Neighbours: `store/support.rs` makes the servers, the fleet's relay stands between them. It must not assert what a store does.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use onceway::adapters::postgres::PgStore;
use onceway::fleet::relay::Relay;
use onceway::ports::contract::replication::{REGIONS, ReplicationBench};
use onceway::ports::{KeyStore, Replica};
use onceway::protocol::key::Tenant;
use onceway::protocol::region::Origin;

use crate::support::{Region, eventually, id, init_until_complete};

const ORIGINS: [&str; REGIONS] = ["eu#1", "us-east#1", "ap#1"];

pub struct Three {
    regions: Vec<Region>,
    stores: Vec<PgStore>,
    /// By publisher and subscriber.
    relays: BTreeMap<(usize, usize), Relay>,
}

impl Three {
    pub async fn start() -> Three {
        let mut regions = Vec::new();
        for origin in ORIGINS {
            regions.push(Region::start(origin).await);
        }
        let mut relays = BTreeMap::new();
        for (from, region) in regions.iter().enumerate() {
            let target = SocketAddr::from((Ipv4Addr::LOCALHOST, region.cluster.port()));
            for to in (0..REGIONS).filter(|to| *to != from) {
                relays.insert((from, to), Relay::start(target).await.unwrap());
            }
        }
        let plan = |to: usize| {
            let mut plan = regions[to].plan(&[], &[]);
            plan.all = regions.iter().map(|region| region.origin.clone()).collect();
            for from in (0..REGIONS).filter(|from| *from != to) {
                let (direct, port) = (regions[from].conninfo(), regions[from].cluster.port());
                let relayed = relays[&(from, to)].local_addr().port();
                let conninfo = direct.replace(&format!("port={port} "), &format!("port={relayed} "));
                assert_ne!(conninfo, direct, "the link must go through its relay");
                plan.subscribe.push((regions[from].origin.clone(), conninfo));
            }
            plan
        };
        let plans = [plan(0), plan(1), plan(2)];
        tokio::join!(
            init_until_complete(&plans[0]),
            init_until_complete(&plans[1]),
            init_until_complete(&plans[2])
        );
        let stores = regions.iter().map(Region::store).collect();
        Three { regions, stores, relays }
    }
}

impl ReplicationBench for Three {
    type Store = PgStore;

    fn store(&self, region: usize) -> &PgStore {
        &self.stores[region]
    }

    fn origin(&self, region: usize) -> Origin {
        self.regions[region].origin.clone()
    }

    fn tenant(&self, name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    async fn cut(&self, from: usize, to: usize) {
        self.relays[&(from, to)].cut();
    }

    async fn mend(&self, from: usize, to: usize) {
        self.relays[&(from, to)].mend();
    }

    async fn shows(&self, to: usize, from: usize, heartbeat: u64) {
        let origin = &self.regions[from].origin;
        eventually("a heartbeat to arrive", || async {
            let beats = self.stores[to].heartbeats().await.ok()?;
            beats.into_iter().find(|beat| beat.origin == *origin && beat.seq >= heartbeat)
        })
        .await;
    }

    async fn crash(&self, region: usize) {
        let (cluster, store) = (&self.regions[region].cluster, &self.stores[region]);
        cluster.kill().await.unwrap();
        cluster.start().await.unwrap();
        // Connections that were lost are noticed by their own tasks, so the first call may still meet one.
        eventually("the store to answer again", || async {
            let (keys, control) = (store.look_up(&[id("any")]).await, store.heartbeats().await);
            (keys.is_ok() && control.is_ok()).then_some(())
        })
        .await;
    }
}

//! The store's bench: a private Postgres, restarted for real, and rows of another region that a
//! superuser inserts.
//!
//! `store/support.rs` makes the server and its store.

use crate::store::support::{Region, ask, id, open, won};
use crate::support::*;
use onceway::adapters::postgres::{PgStore, provision};
use onceway::ports::store::{ClaimAsk, ClaimReply};
use onceway::protocol::record::{Basis, Reader, Reading, Row, State, resolve};
use onceway_lab::contract::store::{Foreign, LONG, StoreBench};

const ME: &str = "eu#1";
const PEERS: [&str; 2] = ["us-east#1", "ap#3"];
const BOUND: Duration = Duration::from_secs(60);

pub struct Stores {
    region: Region,
    store: PgStore,
    /// True if the next restart is a crash: crashes and clean restarts take turns.
    crash: AtomicBool,
}

impl Stores {
    pub async fn start() -> Stores {
        let region = Region::start(ME).await;
        let report = provision::init(&region.plan(&[], &PEERS)).await.unwrap();
        assert!(report.is_complete(), "{report}");
        let store = region.store();
        Stores { region, store, crash: AtomicBool::new(true) }
    }
}

impl StoreBench for Stores {
    type Store = PgStore;

    fn store(&self) -> &PgStore {
        &self.store
    }

    fn origin(&self) -> Origin {
        Origin::parse(ME).unwrap()
    }

    fn peers(&self) -> Vec<Origin> {
        PEERS.iter().map(|peer| Origin::parse(peer).unwrap()).collect()
    }

    fn tenant(&self, name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    async fn arrives(&self, id: &KeyId, state: Foreign) -> Token {
        let number: i16 = match state {
            Foreign::Claimed => 1,
            Foreign::InDoubt => 2,
            Foreign::Released => 3,
            Foreign::Settled => 4,
        };
        let epoch = self.store.gate().await.unwrap().epoch;
        let sql = "insert into onceway.records (tenant, key, origin, state, epoch, attempt, nonce, fp_raw, request_id, held_at, held_ms, \
                       hold_ms, settle_ms, recovery, expires_at, answer_status, answer_headers, settled_at) \
                   select $1, $2, $3, s, $5, 1, gen_random_uuid(), sha256(''), gen_random_uuid(), now(), 0, \
                       $6, 0, 0, now() + $6::bigint * interval '1 millisecond', case s when 4 then 200 end, case s when 4 then '\\x01'::bytea end, \
                       case s when 4 then now() end from (values ($4::smallint)) v (s)";
        let (tenant, key) = (id.tenant().as_str(), id.key().as_bytes());
        let (at, long) = (i64::try_from(epoch).unwrap(), i64::try_from(LONG.as_millis()).unwrap());
        let admin = self.region.admin().await;
        admin.execute(sql, &[&tenant, &key, &PEERS[0], &number, &at, &long]).await.unwrap();
        Token { epoch, attempt: 1 }
    }

    async fn beats(&self) {
        let sql = "insert into onceway.heartbeats (origin, seq, epoch, beat_at) values ($1, 1, 1, now()) \
                       on conflict (origin) do update set seq = heartbeats.seq + 1";
        self.region.admin().await.execute(sql, &[&PEERS[0]]).await.unwrap();
    }

    async fn restart(&self) {
        let cluster = &self.region.cluster;
        if self.crash.fetch_xor(true, Ordering::Relaxed) {
            cluster.kill().await.unwrap();
        } else {
            cluster.stop(BOUND).await.unwrap();
        }
        cluster.start().await.unwrap();
        // Lost connections are noticed by their own tasks, so the first call may still meet one.
        until("the store to answer again", async || {
            let (keys, control) = (self.store.look_up(&[id("any")]).await, self.store.heartbeats().await);
            keys.is_ok() && control.is_ok()
        })
        .await;
    }

    async fn pass(&self, span: Duration) {
        let sql = "update onceway.heartbeats set observed_ms = observed_ms + $2 where origin = $1";
        let millis = i64::try_from(span.as_millis()).unwrap();
        let passed = self.region.admin().await.execute(sql, &[&self.origin().to_string(), &millis]).await;
        assert_eq!(passed.unwrap(), 1, "no heartbeat");
    }
}

/// Schedule: a first own claim supersedes a peer's doubt and is released. The key is claimed again
/// on the own row alone. If that claim overwrote the first one's list, the peer's doubt would read
/// as one again, over a running attempt.
#[tokio::test]
async fn a_superseded_doubt_stays_superseded_under_later_claims() {
    let bench = Stores::start().await;
    let gate = open(&bench.store).await;
    let key = id("masked");
    let doubt = (bench.peers()[0].clone(), bench.arrives(&key, Foreign::InDoubt).await);
    let basis = Basis::Known { own: None, over: vec![doubt.clone()], attempt: 1 };
    let mut last = won(&bench.store, &ClaimAsk { basis, ..ask("masked", 1, gate.version) }).await;
    for nonce in 2..=4 {
        bench.store.release(&last).await.unwrap();
        let own = Some((last.token, last.nonce));
        let basis = Basis::Known { own, over: Vec::new(), attempt: last.token.attempt };
        let again = ClaimAsk { basis, ..ask("masked", nonce, gate.version) };
        last = won(&bench.store, &again).await;
        let rows = bench.store.look_up(std::slice::from_ref(&key)).await.unwrap().remove(0);
        let reader =
            Reader::new(bench.origin(), onceway::protocol::time::Drift { ppm: 0, margin: Duration::ZERO });
        let Reading::InProgress(row) = resolve(rows, &reader) else { panic!("the doubt came back") };
        assert_eq!((row.nonce, row.over), (Nonce(nonce), vec![doubt.clone()]));
    }

    // A newer doubt of the same peer, once superseded, replaces the older one in the list.
    bench.store.release(&last).await.unwrap();
    let admin = bench.region.admin().await;
    admin.execute("update onceway.records_us_east_g1 set attempt = 9", &[]).await.unwrap();
    let own = Some((last.token, last.nonce));
    let stale = Basis::Known { own, over: Vec::new(), attempt: last.token.attempt };
    let stale = ClaimAsk { basis: stale, ..ask("masked", 5, gate.version) };
    assert!(matches!(bench.store.claim(&stale).await, Ok(ClaimReply::Found(rows)) if rows.len() == 2));
    let newer = vec![(doubt.0, Token { attempt: 9, ..doubt.1 })];
    let basis = Basis::Known { own, over: newer.clone(), attempt: 9 };
    won(&bench.store, &ClaimAsk { basis, ..ask("masked", 6, gate.version) }).await;
    let rows = bench.store.look_up(&[key]).await.unwrap().remove(0);
    let claimed = |row: &Row| matches!(row.state, State::Claimed { .. }).then(|| row.over.clone());
    assert_eq!(rows.iter().find_map(claimed), Some(newer));
}

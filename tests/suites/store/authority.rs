//! Escrows and imports over a real Postgres: the waits, and the state after a crash.

use crate::store::support::*;
use onceway::ports::authority::Lodging;
use onceway::ports::store::{PeerMemory, Terms};
use onceway_lab::contract::escrow::lodging_of;

pub fn state(epoch: u64) -> GateState {
    GateState::founded(Arc::new(view_of_one(&RegionName::parse("eu").unwrap(), epoch)))
}

pub fn other() -> Origin {
    origin("other#1")
}

/// A claim of another region, as it asks to keep it here.
pub fn lodging(key: &str, nonce: u128) -> Lodging {
    let lodging = lodging_of(id(key), other(), Token { epoch: 1, attempt: 1 }, Nonce(nonce));
    let terms = Terms {
        fingerprint: print(key),
        request_id: RequestId(nonce),
        hold: HOLD,
        lifetime: lifetime(RETENTION, RETENTION),
        principal: None,
        ..lodging.terms
    };
    Lodging { terms, ..lodging }
}

pub async fn waits(admin: &Client, text: &str) {
    let sql = "select exists (select from pg_stat_activity where pid <> pg_backend_pid() \
               and wait_event_type = 'Lock' and query like '%' || $1 || '%')";
    let waits = async || admin.query_one(sql, &[&text]).await.unwrap().get::<_, bool>(0);
    until("a statement to wait", waits).await;
}

/// A crash leaves all of a conversion or nothing. Two at once convert each row once.
#[tokio::test]
async fn escrows_are_converted_once_or_not_at_all() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let keys: Vec<String> = (0..20).map(|at| format!("key-{at:02}")).collect();
    for (key, nonce) in keys.iter().zip(1..) {
        assert_eq!(store.lodge(&lodging(key, nonce), gate.version).await, Ok(Lodged::Done));
    }
    let (mut slow, admin) = (region.admin().await, region.admin().await);
    let held = slow.transaction().await.unwrap();
    // The last row that is written: everything else of the statement is done when it waits.
    let sql = "insert into onceway.doubts (tenant, key) values ('acme', 'key-19')";
    held.execute(sql, &[]).await.unwrap();
    let origin = other();
    let (broken, ()) = tokio::join!(store.convert(&origin, 100), async {
        waits(&admin, "onceway.escrows").await;
        region.cluster.kill().await.unwrap();
    });
    assert!(broken.is_err(), "{broken:?}");
    region.cluster.start().await.unwrap();
    let (store, second) = (region.store(), region.store());
    assert!(store.convert(&origin, 100).await.is_err(), "the boot is not approved");
    open(&store).await;
    assert_eq!(store.look_up(&[id("key-00")]).await, Ok(vec![vec![]]), "half of a conversion stayed");

    let all = async |store: &PgStore| {
        let mut all = 0;
        loop {
            match store.convert(&origin, 3).await.unwrap() {
                0 => return all,
                some => all += some,
            }
        }
    };
    let (one, two) = tokio::join!(all(&store), all(&second));
    assert_eq!(one + two, 20, "{one} and {two}");
    for (key, nonce) in keys.iter().zip(1..) {
        let row = only_row(&store, key).await;
        assert_eq!(row.nonce, Nonce(nonce));
        assert!(matches!(row.state, State::InDoubt { .. }), "{row:?}");
    }
}

/// Its rows may be gone to another conversion while more are behind them.
#[tokio::test]
async fn a_conversion_that_came_second_does_not_stop_early() {
    let (region, store, gate) = Region::ready("eu#1").await;
    for (key, nonce) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(store.lodge(&lodging(key, nonce), gate.version).await, Ok(Lodged::Done));
    }
    let (mut slow, admin) = (region.admin().await, region.admin().await);
    let held = slow.transaction().await.unwrap();
    held.execute("delete from onceway.escrows where key in ('a', 'b')", &[]).await.unwrap();
    let origin = other();
    let (taken, ()) = tokio::join!(store.convert(&origin, 2), async {
        waits(&admin, "onceway.escrows").await;
        held.commit().await.unwrap();
    });
    assert_eq!(taken, Ok(1), "one is left");
}

/// No region compares another's dates (docs/protocol.md#rule-12). The hold of another region's row
/// is reported whole, and its answer is replayed until its origin makes it a tombstone.
#[tokio::test]
async fn other_origins_rows_are_not_judged_by_this_clock() {
    let (region, store, _gate) = Region::ready("eu#1").await;
    let sql = "insert into onceway.records (tenant, key, origin, state, epoch, attempt, nonce, fp_raw, request_id, held_at, held_ms, hold_ms, \
                       settle_ms, recovery, expires_at, due_ms, answer_status, answer_headers, settled_at) \
               select 'acme', convert_to(k, 'UTF8'), 'other#1', s, 1, 1, gen_random_uuid(), sha256(''), gen_random_uuid(), \
                   now() - interval '1 day', -86400000, 60000, 0, 0, now(), -3600000, case s when 4 then 200 end, \
                   case s when 4 then '\\x01'::bytea end, case s when 4 then now() end from (values ('open', 1), ('answered', 4)) v (k, s)";
    region.admin().await.execute(sql, &[]).await.unwrap();
    let whole = State::Claimed { left: Duration::from_secs(60), past: Duration::ZERO };
    assert_eq!(only_row(&store, "open").await.state, whole);
    let answered = only_row(&store, "answered").await.state;
    assert!(matches!(answered, State::Settled { expired: false, .. }), "{answered:?}");
}

/// No other region forgets rows that a survivor handed over.
#[tokio::test]
async fn an_imported_row_expires_like_its_original() {
    let (region, store, _gate) = Region::ready("eu#1").await;
    let (admin, origin) = (region.admin().await, other());
    for key in ["a", "b"] {
        region.arrives(key, 3, 1).await;
    }
    let rows = store.rows_of(&origin, None, 10).await.unwrap();
    store.import(&origin, &rows).await.unwrap();
    admin.execute("delete from onceway.records where origin = 'other#1'", &[]).await.unwrap();
    assert_eq!(store.look_up(&[id("a")]).await.unwrap()[0].len(), 1);
    let sql = "select bool_and(due_ms = 25 * 3600000) \
               from onceway.records_imported";
    assert!(value::<bool>(&admin, sql).await, "they live as long as they would there");
    // Rows that are handed on do not live longer for it.
    let again = store.rows_of(&origin, None, 10).await.unwrap();
    assert!(again.iter().zip(&rows).all(|(again, first)| again.lives <= first.lives), "{again:?}");
    assert_eq!(store.reap_imports(10).await, Ok(0));
    admin.execute("update onceway.records_imported set due_ms = 0 where key = 'a'", &[]).await.unwrap();
    assert_eq!(store.reap_imports(10).await, Ok(1));
    let left = store.look_up(&[id("a"), id("b")]).await.unwrap();
    assert_eq!((left[0].len(), left[1].len()), (0, 1));
}

/// The order in which gateways write does not matter.
#[tokio::test]
async fn the_imported_mark_never_goes_back() {
    let (_region, store, _gate) = Region::ready("eu#1").await;
    let at = |imported| vec![PeerMemory { origin: other(), applied: 0, lag: None, imported }];
    for imported in [0, 9, 4] {
        store.remember(&at(imported)).await.unwrap();
    }
    assert_eq!(store.recall().await, Ok(at(9)));
}

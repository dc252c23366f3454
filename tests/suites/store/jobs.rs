//! Jobs over a real Postgres: the cost of a look while many wait for a later run, and drops that
//! meet workers.

use crate::store::support::*;
use http::Uri;
use onceway::ports::jobs::{Act, StoredRequest, Turns};

const LONG: Duration = Duration::from_secs(3_600);

pub fn request() -> StoredRequest {
    StoredRequest {
        method: Method::POST,
        target: Uri::from_static("/later"),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
    }
}

async fn accept(store: &PgStore, key: &str, nonce: u128, gate: GateVersion) {
    let reply = store.accept(&ask(key, nonce, gate), &request(), LONG).await;
    assert!(matches!(reply, Ok(ClaimReply::Won { .. })), "{reply:?}");
}

/// Workers look several times a second: they must not read all jobs that are put off.
#[tokio::test]
async fn workers_read_only_due_jobs() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let admin = region.admin().await;
    let many = "insert into onceway.jobs (tenant, key, request_id, next_ms, forget_ms, sealed, request) \
                select 'acme', convert_to('k-' || i, 'UTF8'), gen_random_uuid(), 3600000, 86400000, \
                       false, '\\x00' from generate_series(1, 20000) i";
    admin.batch_execute(&format!("{many}; analyze onceway.jobs")).await.unwrap();
    for number in 0..3 {
        accept(&store, &format!("due-{number}"), number, gate.version).await;
    }
    let read = async || {
        let sql = "select coalesce(idx_scan, 0), coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) \
                   from pg_stat_user_tables where relid = 'onceway.jobs'::regclass";
        let row = admin.query_one(sql, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    // Sessions report their reads when they end.
    let close = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'gw'";
    admin.query_one(close, &[]).await.unwrap();
    let quiet = "select not exists (select from pg_stat_activity where usename = 'gw')";
    until("the sessions to end", async || value::<bool>(&admin, quiet).await).await;
    let before = read().await;
    let looker = region.store();
    assert_eq!(looker.take(Nonce(9), 16, LONG, None).await.unwrap().len(), 3);
    assert_eq!(looker.take(Nonce(10), 16, LONG, None).await.unwrap().len(), 0);
    admin.query_one(close, &[]).await.unwrap();
    until("the looks to be counted", async || read().await.0 >= before.0 + 2).await;
    let cost = read().await.1 - before.1;
    assert!(cost < 200, "two looks read {cost} rows for 3 due jobs");

    // Now all jobs of that tenant are due, so that another one's waiting jobs are behind them.
    let due = "update onceway.jobs set next_ms = -1; insert into onceway.jobs \
               select 'globex', key, request_id, 1, 0, null, 0, accepted_at, forget_ms, sealed, request \
                 from onceway.jobs where key = 'k-7'; analyze onceway.jobs";
    admin.batch_execute(due).await.unwrap();
    // The reads of that statement are counted before the look.
    admin.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    let before = read().await;
    let looker = region.store();
    let turns = Turns { but_of: vec![id("any").tenant().clone()], after: None };
    let taken = looker.take(Nonce(11), 4, LONG, Some(&turns)).await.unwrap();
    assert_eq!(taken.iter().map(|job| job.taken.id.tenant().as_str()).collect::<Vec<_>>(), ["globex"]);
    admin.query_one(close, &[]).await.unwrap();
    until("the look to be counted", async || read().await.0 > before.0).await;
    let cost = read().await.1 - before.1;
    assert!(cost < 200, "a look past {} of another tenant read {cost} rows", 20_003);
}

/// No worker has a dropped job, and a job that a worker has still has its record.
#[tokio::test]
async fn a_job_is_either_dropped_or_taken() {
    let (_region, store, gate) = Region::ready("eu#1").await;
    let store = Arc::new(store);
    let mut dropped = 0;
    for number in 0..60 {
        let key = format!("raced-{number}");
        accept(&store, &key, number, gate.version).await;
        let mut both = JoinSet::new();
        for taker in [true, false] {
            let (store, key) = (store.clone(), key.clone());
            both.spawn(async move {
                // One of the two begins a little later.
                for _ in 0..(number % 4) * u128::from(taker) {
                    tokio::task::yield_now().await;
                }
                if taker {
                    let jobs = store.take(Nonce(1_000 + number), 16, LONG, None).await.unwrap();
                    return (!jobs.is_empty(), false);
                }
                let act = Act { actor: "ada".to_owned(), reason: "a test".to_owned() };
                (false, store.discard(&id(&key), &act).await.unwrap() == Acted::Done)
            });
        }
        let ends = both.join_all().await;
        let (taken, gone) = (ends.iter().any(|end| end.0), ends.iter().any(|end| end.1));
        let row = store.look_up(&[id(&key)]).await.unwrap().remove(0).remove(0);
        assert!(!(taken && gone), "{key} was dropped while a worker had it");
        assert_eq!((row.accepted, row.state), (!gone, State::Released));
        assert_eq!(store.job(&id(&key)).await.unwrap().is_none(), gone);
        dropped += u32::from(gone);
    }
    assert!(dropped > 0, "no drop was ever first");
}

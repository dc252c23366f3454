//! Costs and refusals of a store over a real Postgres: indexes, bounds of time, another region's
//! address.

use crate::store::support::*;

#[tokio::test]
async fn claims_and_lookups_use_indexes_on_empty_leaves() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let admin = region.admin().await;
    admin.batch_execute("analyze").await.unwrap();
    // Building an index counts as a scan: wait until the connection that did it has reported and
    // gone.
    found("the end of init", || async {
        let sql = "select true where not exists (select from pg_stat_activity where application_name = 'onceway' and usename = 'postgres')";
        admin.query_opt(sql, &[]).await.unwrap()
    })
    .await;
    let scans = "select coalesce(sum(seq_scan), 0)::bigint, coalesce(sum(idx_scan), 0)::bigint \
                 from pg_stat_user_tables where relname like 'records%'";
    let answer = Answer { status: 201, headers: Vec::new(), body: AnswerBody::NotKept };
    let before: i64 = value(&admin, scans).await;
    for nonce in 1..=20 {
        let key = format!("k{nonce}");
        let a = won(&store, &ask(&key, nonce, gate.version)).await;
        store.doubt(&a, None).await.unwrap();
        let basis = Basis::Known { own: Some((a.token, a.nonce)), over: vec![], attempt: 1 };
        let b = won(&store, &ClaimAsk { basis, ..ask(&key, 100 + nonce, gate.version) }).await;
        store.settle(&b, &answer).await.unwrap();
        store.look_up(&[id(&key)]).await.unwrap();
        store.look_up(&[id(&key), id("none")]).await.unwrap();
    }
    // A backend reports its counters when it ends, or long after it fell idle.
    drop(store);
    let counted = found("the counters of scans", || async {
        let row = admin.query_one(scans, &[]).await.unwrap();
        let (sequential, by_index): (i64, i64) = (row.get(0), row.get(1));
        (by_index >= 160).then_some(sequential)
    })
    .await;
    assert_eq!(counted - before, 0, "sequential scans");
}

#[tokio::test]
async fn a_stalled_server_costs_one_time_limit() {
    let (region, _store, gate) = Region::ready("eu#1").await;
    let store = region.store_within(Duration::from_millis(600));
    won(&store, &ask("k", 1, gate.version)).await;
    region.cluster.pause().await.unwrap();
    let asked = ask("secret-key", 2, gate.version);
    let sent = tokio::time::timeout(Duration::from_secs(20), store.claim(&asked));
    let error = sent.await.expect("a bound").unwrap_err();
    assert!(matches!(&error, StoreError::Unknown(_)), "{error}");
    // The pool gave that connection up. A new one cannot be had, so nothing can have been sent.
    let asked = ask("secret-key", 3, gate.version);
    let sent = tokio::time::timeout(Duration::from_secs(20), store.claim(&asked));
    let second = sent.await.expect("a bound").unwrap_err();
    assert!(matches!(&second, StoreError::Definite(_)), "{second}");
    let texts: BTreeSet<String> = [error.to_string(), second.to_string()].into();
    assert!(texts.iter().all(|text| !text.contains("secret")), "{texts:?}");
    region.cluster.resume().await.unwrap();
    found("a claim", || async { store.claim(&ask("later", 4, gate.version)).await.ok() }).await;
}

#[tokio::test]
async fn the_server_gives_up_statements_that_wait_too_long() {
    let (region, _store, gate) = Region::ready("eu#1").await;
    let store = region.store_within(Duration::from_secs(2));
    let admin = region.admin().await;
    admin.batch_execute("begin; update onceway.gate set version = version").await.unwrap();
    let error = store.claim(&ask("k", 1, gate.version)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Definite(text) if text.contains("57014")), "{error}");
    admin.batch_execute("rollback").await.unwrap();
    won(&store, &ask("k", 1, gate.version)).await;
}

/// A gateway that is pointed at another region's store never gets a version to claim with.
#[tokio::test]
async fn a_store_of_another_region_shows_no_gate() {
    let (mut region, _store, _gate) = Region::ready("eu#1").await;
    region.origin = origin("us#1");
    let failure = region.store().gate().await.unwrap_err();
    assert!(matches!(&failure, StoreError::Definite(text) if text.contains("belongs to eu#1")), "{failure}");
}

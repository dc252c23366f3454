//! Batches of claims and settlements over a real Postgres: what they cost, and what happens to them
//! while the server stands still.

use crate::store::support::*;

/// Keys that are handled at the same time, and how often.
const AT_ONCE: u128 = 64;
const ROUNDS: u128 = 10;

/// Transactions that wrote, sequential scans of records, and rows found by index.
async fn counted(admin: &Client) -> [i64; 3] {
    let sql = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, coalesce(sum(seq_scan), 0)::bigint, \
                      coalesce(sum(idx_tup_fetch), 0)::bigint from pg_stat_user_tables where relname like 'records%'";
    let row = admin.query_one(sql, &[]).await.unwrap();
    [row.get(0), row.get(1), row.get(2)]
}

/// A backend reports its counters when it ends.
async fn all_gone(admin: &Client) {
    let sql = "select true where not exists (select from pg_stat_activity where usename = 'gw' or application_name = 'onceway')";
    found("the end of all backends", || async { admin.query_opt(sql, &[]).await.unwrap() }).await;
}

/// Makes the calls as tasks that are ready to run at the same time.
async fn together<T: Send + 'static>(
    calls: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    calls.collect::<JoinSet<T>>().join_all().await
}

#[tokio::test]
async fn concurrent_keys_share_transactions_and_use_indexes() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let admin = region.admin().await;
    admin.batch_execute("analyze").await.unwrap();
    drop(store);
    all_gone(&admin).await;
    let before = counted(&admin).await;
    let store = Arc::new(region.store());
    let answer = Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(vec![7; 1_000]) };
    for nonce in (0..ROUNDS).map(|round| round * AT_ONCE) {
        let claims = (nonce..nonce + AT_ONCE).map(|nonce| {
            let (store, ask) = (store.clone(), ask(&format!("k{nonce}"), 1 + nonce, gate.version));
            async move { won(&store, &ask).await }
        });
        let settlements = together(claims).await.into_iter().map(|attempt| {
            let (store, answer) = (store.clone(), answer.clone());
            async move { store.settle(&attempt, &answer).await }
        });
        assert!(together(settlements).await.iter().all(|settled| *settled == Ok(Written::Done)));
    }
    drop(store);
    all_gone(&admin).await;
    let after = counted(&admin).await;
    let [commits, scans, fetched] = std::array::from_fn(|at| after[at] - before[at]);
    let keys = (ROUNDS * AT_ONCE) as i64;
    assert!(commits * 10 <= keys, "{commits} transactions for {keys} keys");
    assert_eq!(scans, 0, "sequential scans");
    assert!(fetched <= 3 * keys, "{fetched} rows were looked at for {keys} keys");
}

/// No reply comes while the server stands still. The calls may have been made, and are found again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_batch_reply_is_recovered() {
    let (region, _store, gate) = Region::ready("eu#1").await;
    let store = Arc::new(region.store_within(Duration::from_millis(600)));
    won(&store, &ask("first", 1, gate.version)).await;
    let claims = |what: &'static str| {
        let store = store.clone();
        async move {
            let all = (0..20).map(|at| (store.clone(), ask(&format!("{what}{at}"), 100 + at, gate.version)));
            let all = all.map(|(store, ask)| async move { store.claim(&ask).await });
            all.collect::<JoinSet<_>>().join_all().await
        }
    };
    // So that both statements are prepared.
    assert!(claims("warm").await.iter().all(Result::is_ok));
    region.cluster.pause().await.unwrap();
    let replies = claims("k").await;
    assert!(replies.iter().all(Result::is_err), "{replies:?}");
    assert!(replies.iter().any(|reply| matches!(reply, Err(StoreError::Unknown(_)))), "{replies:?}");
    region.cluster.resume().await.unwrap();
    found("a claim", || async { store.claim(&ask("later", 4, gate.version)).await.ok() }).await;
    for reply in claims("k").await {
        assert!(matches!(reply, Ok(ClaimReply::Won { token, .. }) if token.attempt == 1), "{reply:?}");
    }
}

//! Costs and refusals of a store over a real Postgres: indexes, batches, bounds of time, another
//! region's address.

use crate::store::authority::{lodging, other};
use crate::store::support::*;
use onceway::ports::audit::Begin;
use onceway::ports::{Acceptors, Audit};

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

const AT_ONCE: u128 = 64;
const ROUNDS: u128 = 10;

async fn counted(admin: &Client) -> [i64; 3] {
    let sql = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, coalesce(sum(seq_scan), 0)::bigint, \
                      coalesce(sum(idx_tup_fetch), 0)::bigint from pg_stat_user_tables where relname like 'records%'";
    let row = admin.query_one(sql, &[]).await.unwrap();
    [row.get(0), row.get(1), row.get(2)]
}

/// Makes the calls as tasks that are ready to run at the same time.
async fn together<T: Send + 'static>(
    calls: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    calls.collect::<JoinSet<T>>().join_all().await
}

async fn counted_since(admin: &Client, before: [i64; 3]) -> [i64; 3] {
    // A backend reports its counters when it ends.
    let sql = "select true where not exists (select from pg_stat_activity where usename = 'gw' or application_name = 'onceway')";
    found("the end of all backends", || async { admin.query_opt(sql, &[]).await.unwrap() }).await;
    let after = counted(admin).await;
    std::array::from_fn(|at| after[at] - before[at])
}

/// A new store with empty leaves, and the counts before its use: building an index counts, too.
async fn counting() -> (Region, Client, Arc<PgStore>, Gate, [i64; 3]) {
    let (region, store, gate) = Region::ready("eu#1").await;
    let admin = region.admin().await;
    admin.batch_execute("analyze").await.unwrap();
    drop(store);
    let before = counted_since(&admin, [0; 3]).await;
    let store = Arc::new(region.store());
    (region, admin, store, gate, before)
}

#[tokio::test]
async fn claims_and_lookups_use_indexes_on_empty_leaves() {
    let (_region, admin, store, gate, before) = counting().await;
    let answer = Answer { status: 201, headers: Vec::new(), body: AnswerBody::NotKept };
    for nonce in 1..=20 {
        let key = format!("k{nonce}");
        let a = won(&store, &ask(&key, nonce, gate.version)).await;
        store.doubt(&a, None).await.unwrap();
        let again = ClaimAsk { basis: known(Some(&a)), ..ask(&key, 100 + nonce, gate.version) };
        let b = won(&store, &again).await;
        store.settle(&b, &answer).await.unwrap();
        store.look_up(&[id(&key)]).await.unwrap();
        store.look_up(&[id(&key), id("none")]).await.unwrap();
    }
    drop(store);
    let [_, scans, fetched] = counted_since(&admin, before).await;
    assert_eq!(scans, 0, "sequential scans");
    assert!(fetched >= 20, "{fetched} rows were counted");
}

#[tokio::test]
async fn concurrent_keys_share_transactions_and_use_indexes() {
    let (_region, admin, store, gate, before) = counting().await;
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
    let [commits, scans, fetched] = counted_since(&admin, before).await;
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

const CONNECTIONS: usize = 4;

/// The statements of gateways that wait for a lock: process and beginning of each.
async fn stuck(admin: &Client) -> Vec<String> {
    let sql = "select pid || ' ' || query_start from pg_stat_activity
                where usename = 'gw' and wait_event_type = 'Lock' order by 1";
    admin.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn stuck_clients_delay_neither_fencing_nor_peers_nor_people() {
    let (region, _, gate) = Region::ready("eu#1").await;
    let store = Arc::new(region.store_of(CONNECTIONS, Duration::from_secs(60)));
    let (watching, admin) = (region.admin().await, region.admin().await);
    admin.batch_execute("begin; lock table onceway.records in share mode").await.unwrap();
    let mut claims = JoinSet::new();
    // Claims at risk share no statement.
    let risk = vec![other().region];
    for number in 0..2 * CONNECTIONS as u128 {
        let ask = ask(&format!("stuck-{number}"), number + 10, gate.version);
        let (store, ask) = (store.clone(), ClaimAsk { risk: risk.clone(), ..ask });
        claims.spawn(async move { store.claim(&ask).await });
    }
    let before = found("all connections for keys to be stuck", || async {
        let stuck = stuck(&watching).await;
        (stuck.len() == CONNECTIONS).then_some(stuck)
    })
    .await;

    // Fencing: the heartbeat, the acceptor that grants leases, the gate.
    assert!(store.beat(None).await.unwrap().is_some());
    let (version, acceptor) = store.acceptor().await.unwrap();
    done(store.set_acceptor(version, &acceptor).await);
    assert!(store.gate().await.unwrap().is_open());
    // Other regions: a claim to lodge, an import.
    assert_eq!(store.lodge(&lodging("lodged", 1), gate.version).await, Ok(Lodged::Done));
    assert!(store.rows_of(&other(), None, 10).await.is_ok());
    // People: status, a key, lists.
    assert!(store.subscriptions().await.is_ok());
    assert_eq!(store.look_up_beside(&[id("stuck-0")]).await, Ok(vec![Vec::new()]));
    assert!(store.doubts(None, 10).await.is_ok() && store.journal(&id("stuck-0")).await.is_ok());
    assert!(store.histories(Begin::First, 10).await.is_ok() && store.jobs(None, 10).await.is_ok());
    // Work beside requests.
    assert!(store.claims(None, Duration::ZERO, 10).await.is_ok() && store.load().await.is_ok());
    assert_eq!(stuck(&watching).await, before, "none of the clients got through meanwhile");

    admin.batch_execute("rollback").await.unwrap();
    while let Some(claimed) = claims.join_next().await {
        assert!(matches!(claimed.unwrap(), Ok(ClaimReply::Won { .. })));
    }
}

/// Makes calls without an answer until the store is spared them. Returns the refusal.
async fn spared<F>(store: &Arc<PgStore>, call: impl Fn(Arc<PgStore>, u128) -> F) -> String
where
    F: Future<Output = Option<StoreError>> + Send + 'static,
{
    for round in 0.. {
        let mut calls = JoinSet::new();
        for number in 0..3 * CONNECTIONS as u128 {
            calls.spawn(call(store.clone(), round * 100 + number));
        }
        while let Some(failed) = calls.join_next().await {
            failed.unwrap().expect("nothing gets through a lock");
        }
        if let Some(why) = store.breaker_status() {
            return why;
        }
        assert!(round < 10, "the store is asked on and on");
    }
    unreachable!("the loop ends by itself")
}

fn refused_at_once<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> bool {
    matches!(&outcome, Err(StoreError::Definite(why)) if why.contains("refused at once"))
}

#[tokio::test]
async fn a_silent_store_is_spared_until_it_answers() {
    let (region, _, gate) = Region::ready("eu#1").await;
    let store = Arc::new(region.store_of(CONNECTIONS, Duration::from_secs(1)));
    let admin = region.admin().await;
    let running = won(&store, &ask("running", 1, gate.version)).await;
    let version = gate.version;

    admin.batch_execute("begin; lock table onceway.records in share mode").await.unwrap();
    let claim = move |store: Arc<PgStore>, number: u128| async move {
        store.claim(&ask(&format!("late-{number}"), number + 10, version)).await.err()
    };
    let why = spared(&store, claim).await;
    assert!(why.starts_with("writes of keys are refused at once") && !why.contains("reads"), "{why}");
    assert!(refused_at_once(store.claim(&ask("new", 2, version)).await), "nothing was sent, definitely");
    assert!(refused_at_once(store.release(&running).await), "and an outcome is stored later");
    assert_eq!(store.look_up(&[id("running")]).await.unwrap()[0].len(), 1, "reads are answered");
    assert!(store.beat(None).await.unwrap().is_some(), "what fences is never refused");
    admin.batch_execute("rollback").await.unwrap();
    until("the writes' probe", async || store.breaker_status().is_none()).await;
    let new = won(&store, &ask("new", 3, version)).await;
    done(store.release(&new).await);
    done(store.release(&running).await);

    admin.batch_execute("begin; lock table onceway.records in access exclusive mode").await.unwrap();
    let look = move |store: Arc<PgStore>, _| async move { store.look_up(&[id("running")]).await.err() };
    let why = spared(&store, look).await;
    assert!(why.contains("reads of keys are refused at once"), "{why}");
    assert!(refused_at_once(store.look_up(&[id("running")]).await));
    admin.batch_execute("rollback").await.unwrap();
    until("the reads' probe", async || store.breaker_status().is_none()).await;
    assert_eq!(store.look_up(&[id("running")]).await.unwrap()[0].len(), 1);
}

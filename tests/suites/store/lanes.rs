//! Separate connections: clients whose statements are stuck delay neither fencing nor other regions
//! nor people. After calls without an answer, only a probe goes to the store until it is answered.
//!
//! A superuser's lock keeps statements from their answers.

use crate::store::authority::{lodging, other};
use crate::store::support::*;
use onceway::ports::audit::Begin;
use onceway::ports::{Acceptors, Audit};
use std::future::Future;

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

//! The store over a real Postgres: claims, outcomes, recovery, the gate, rights, plans.
//!
//! `support` starts the servers, `provisioning` tests the mesh. A test must not share its server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::store::support::{Region, ask, attempt, eventually, id, only_row, open, seq, won};
use onceway::adapters::postgres::{PgStore, StoreConfig};
use onceway::ports::store::{Boot, ClaimAsk, ClaimReply, GateVersion, PeerMemory, StoreError, Written};
use onceway::ports::{KeyStore, Replica};
use onceway::protocol::decide::Basis;
use onceway::protocol::fingerprint::{Fingerprint, canonical};
use onceway::protocol::record::{Answer, AnswerBody, Nonce, State, Token};
use onceway::protocol::region::Origin;
use tokio::task::JoinSet;

fn answer(body: AnswerBody) -> Answer {
    let headers = vec![
        ("content-type".to_owned(), b"text/plain".to_vec()),
        ("x-odd".to_owned(), vec![0x80, 0, 0xff]),
        ("x-odd".to_owned(), vec![]),
    ];
    Answer { status: 201, headers, body }
}

/// A claim that stands on the own row of `attempt`.
fn again(key: &str, nonce: u128, gate: GateVersion, own: Option<(Token, Nonce)>) -> ClaimAsk {
    let attempt = own.map_or(0, |(token, _)| token.attempt);
    let basis = Basis::Known { own, over: vec![], attempt };
    ClaimAsk { basis, ..ask(key, nonce, gate) }
}

#[tokio::test]
async fn of_fifty_claims_one_wins_and_none_is_left_without_an_answer() {
    let (_region, store, gate) = Region::ready("eu-west#1").await;
    let store = Arc::new(store);
    let mut claims = JoinSet::new();
    for nonce in 1..=50 {
        let store = store.clone();
        claims.spawn(async move { (nonce, store.claim(&ask("k", nonce, gate.version)).await.unwrap()) });
    }
    let mut winner = None;
    for (nonce, reply) in claims.join_all().await {
        match reply {
            ClaimReply::Won { token, .. } => {
                assert_eq!(token, Token { epoch: 1, attempt: 1 });
                assert_eq!(winner.replace(nonce), None, "two winners");
            }
            ClaimReply::Found(rows) => assert_eq!(rows.len(), 1),
            ClaimReply::GateMoved => panic!("the gate stood still"),
        }
    }
    let row = only_row(&store, "k").await;
    assert_eq!(Some(row.nonce.0), winner);
    assert!(
        matches!(row.state, State::Claimed { left, .. } if left > Duration::ZERO && left <= crate::store::support::HOLD)
    );
}

#[tokio::test]
async fn a_claim_gives_back_what_it_was_asked_and_finds_itself() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let fingerprint =
        Fingerprint { canonical: Some(canonical("POST", "/", b"{}")), ..crate::store::support::print("{}") };
    let asked = ClaimAsk { fingerprint, ..ask("k", 7, gate.version) };
    let first = store.claim(&asked).await.unwrap();
    let ClaimReply::Won { token, expires, .. } = first.clone() else { panic!("{first:?}") };
    let repeated = store.claim(&asked).await;
    assert!(
        matches!(repeated, Ok(ClaimReply::Won { token: same, expires: end, .. }) if (same, end) == (token, expires)),
        "the same nonce finds its own claim: {repeated:?}"
    );
    let row = only_row(&store, "k").await;
    assert_eq!(
        (row.token, row.nonce, row.request_id, row.expires),
        (token, asked.nonce, asked.request_id, expires)
    );
    assert_eq!((row.fingerprint, row.origin.to_string().as_str()), (fingerprint, "eu#1"));
    assert!(
        matches!(store.claim(&ask("k", 8, gate.version)).await, Ok(ClaimReply::Found(rows)) if rows.len() == 1 && rows[0].nonce == row.nonce)
    );

    let stale = GateVersion(gate.version.0 - 1);
    assert_eq!(store.claim(&ask("stale", 9, stale)).await, Ok(ClaimReply::GateMoved));
    assert_eq!(store.claim(&again("stale", 9, stale, None)).await, Ok(ClaimReply::GateMoved));
    assert_eq!(store.look_up(&[id("stale")]).await, Ok(vec![vec![]]));

    // A gateway that is pointed at another region's store never gets a version to claim with.
    let mut region = region;
    region.origin = Origin::parse("us#1").unwrap();
    let wrong = region.store();
    assert!(
        matches!(wrong.gate().await, Err(StoreError::Definite(text)) if text.contains("belongs to eu#1"))
    );
}

#[tokio::test]
async fn outcomes_follow_the_arrows_and_may_be_repeated() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let a = won(&store, &ask("settled", 1, gate.version)).await;
    let stored = answer(AnswerBody::Kept(b"\x00body".to_vec()));
    assert_eq!(store.settle(&a, &stored).await, Ok(Written::Done));
    assert_eq!(store.settle(&a, &stored).await, Ok(Written::Done), "a repeat is done already");
    let row = only_row(&store, "settled").await;
    assert!(matches!(row.state, State::Settled { answer, .. } if *answer == stored));
    let other = answer(AnswerBody::NotKept);
    assert_eq!(store.settle(&a, &other).await, Ok(Written::Lost), "a settled answer never changes");
    assert_eq!(store.release(&a).await, Ok(Written::Lost));
    assert_eq!(store.doubt(&a, None).await, Ok(Written::Lost));
    assert!(matches!(store.claim(&ask("settled", 2, gate.version)).await, Ok(ClaimReply::Found(_))));

    let b = won(&store, &ask("doubt", 3, gate.version)).await;
    assert_eq!(store.doubt(&b, Some(502)).await, Ok(Written::Done));
    assert_eq!(store.doubt(&b, Some(502)).await, Ok(Written::Done));
    assert!(matches!(only_row(&store, "doubt").await.state, State::InDoubt { status: Some(502), .. }));
    assert_eq!(store.settle(&b, &other).await, Ok(Written::Done), "a doubt may be settled");
    let row = only_row(&store, "doubt").await;
    assert!(matches!(row.state, State::Settled { answer, .. } if *answer == other));

    let c = won(&store, &ask("released", 4, gate.version)).await;
    assert_eq!(store.release(&c).await, Ok(Written::Done));
    assert_eq!(store.release(&c).await, Ok(Written::Done));
    assert_eq!(only_row(&store, "released").await.state, State::Released);
    assert_eq!(store.settle(&c, &stored).await, Ok(Written::Lost));
    assert_eq!(store.doubt(&c, None).await, Ok(Written::Lost));
    assert_eq!(only_row(&store, "released").await.token.attempt, 1, "the attempt stays");

    let d = won(&store, &ask("wrong", 5, gate.version)).await;
    for strange in [
        attempt(&d.id, d.token, Nonce(6)),
        attempt(&d.id, Token { attempt: 2, ..d.token }, d.nonce),
        attempt(&d.id, Token { epoch: 2, ..d.token }, d.nonce),
        attempt(&id("nobody"), d.token, d.nonce),
    ] {
        assert_eq!(store.settle(&strange, &stored).await, Ok(Written::Lost));
        assert_eq!(store.release(&strange).await, Ok(Written::Lost));
    }
    assert!(matches!(only_row(&store, "wrong").await.state, State::Claimed { .. }));

    region
        .admin()
        .await
        .execute("update onceway.records_eu_g1 set due_at = clock_timestamp()", &[])
        .await
        .unwrap();
    let past = only_row(&store, "settled").await.state;
    assert!(matches!(past, State::Settled { expired: true, .. }), "past retention: {past:?}");
    assert!(matches!(only_row(&store, "wrong").await.state, State::Claimed { .. }));
}

#[tokio::test]
async fn look_ups_keep_the_order_that_was_asked() {
    let (_region, store, gate) = Region::ready("eu#1").await;
    for (key, nonce) in [("a", 1), ("b", 2), ("c", 3)] {
        won(&store, &ask(key, nonce, gate.version)).await;
    }
    assert_eq!(store.look_up(&[]).await, Ok(vec![]));
    let ids = ["c", "none", "a", "c", "b"].map(id);
    let found = store.look_up(&ids).await.unwrap();
    let nonces: Vec<Vec<u128>> =
        found.iter().map(|rows| rows.iter().map(|row| row.nonce.0).collect()).collect();
    assert_eq!(nonces, [vec![3], vec![], vec![1], vec![3], vec![2]]);
}

#[tokio::test]
async fn of_twenty_recoveries_one_wins_and_a_running_hold_is_safe() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let store = Arc::new(store);
    let first = won(&store, &ask("k", 1, gate.version)).await;
    let own = Some((first.token, first.nonce));
    assert!(
        matches!(store.claim(&again("k", 2, gate.version, own)).await, Ok(ClaimReply::Found(rows)) if rows[0].nonce == first.nonce),
        "its hold runs"
    );
    region
        .admin()
        .await
        .execute("update onceway.records_eu_g1 set held_at = held_at - hold", &[])
        .await
        .unwrap();
    assert!(matches!(only_row(&store, "k").await.state, State::Claimed { left: Duration::ZERO, .. }));

    let mut claims = JoinSet::new();
    for nonce in 100..120 {
        let store = store.clone();
        claims.spawn(async move { store.claim(&again("k", nonce, gate.version, own)).await.unwrap() });
    }
    let replies = claims.join_all().await;
    let winners = replies.iter().filter(|reply| matches!(reply, ClaimReply::Won { .. })).count();
    let losers =
        replies.iter().filter(|reply| matches!(reply, ClaimReply::Found(rows) if rows.len() == 1)).count();
    assert_eq!((winners, losers), (1, 19));
    let row = only_row(&store, "k").await;
    assert_eq!(row.token, Token { epoch: 1, attempt: 2 });
    let repeat = again("k", row.nonce.0, gate.version, own);
    assert!(matches!(store.claim(&repeat).await, Ok(ClaimReply::Won { token, .. }) if token == row.token));
    let late = GateVersion(gate.version.0 + 1);
    let repeat = again("k", row.nonce.0, late, own);
    assert!(
        matches!(store.claim(&repeat).await, Ok(ClaimReply::Won { .. })),
        "own claim, whatever the gate did since"
    );
    assert_eq!(
        store.settle(&first, &answer(AnswerBody::NotKept)).await,
        Ok(Written::Lost),
        "the first was overtaken"
    );

    let second = attempt(&id("k"), row.token, row.nonce);
    assert_eq!(store.doubt(&second, None).await, Ok(Written::Done));
    let third = won(&store, &again("k", 300, gate.version, Some((second.token, second.nonce)))).await;
    assert_eq!(store.release(&third).await, Ok(Written::Done));
    let fourth = won(&store, &again("k", 400, gate.version, Some((third.token, third.nonce)))).await;
    assert_eq!(fourth.token.attempt, 4);
}

#[tokio::test]
async fn rows_of_other_origins_are_read_and_superseded_but_never_written() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let foreign = "insert into onceway.records_other_g1 (tenant, key, origin, state, epoch, attempt, nonce, fp_raw, request_id, \
        held_at, hold, expires_at) select tenant, key, 'other#1', 2, 1, 3, nonce, fp_raw, request_id, held_at, hold, expires_at \
        from onceway.records_eu_g1";
    won(&store, &ask("k", 1, gate.version)).await;
    let admin = region.admin().await;
    admin.batch_execute(foreign).await.unwrap();
    admin.batch_execute("delete from onceway.records_eu_g1").await.unwrap();

    let found = store.claim(&ask("k", 2, gate.version)).await.unwrap();
    assert!(
        matches!(found, ClaimReply::Found(rows) if rows.len() == 1 && rows[0].origin.to_string() == "other#1")
    );
    let over = vec![(Origin::parse("other#1").unwrap(), Token { epoch: 1, attempt: 3 })];
    let basis = Basis::Known { own: None, over: over.clone(), attempt: 3 };
    let claimed = won(&store, &ClaimAsk { basis, ..ask("k", 3, gate.version) }).await;
    assert_eq!(claimed.token.attempt, 4);
    let rows = store.look_up(&[id("k")]).await.unwrap().remove(0);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows.into_iter().find(|row| row.nonce == claimed.nonce).map(|row| row.over), Some(over));

    let gateway = region.gateway_client().await;
    for forbidden in [
        "update onceway.records_other_g1 set state = 3",
        "delete from onceway.records_other_g1",
        foreign,
        "update onceway.records set state = 3",
        "update onceway.heartbeats_other_g1 set seq = 1",
        "truncate onceway.records_eu_g1",
        "update onceway.meta set deployment = 'x'",
    ] {
        let error = gateway.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{forbidden}: {error:?}");
    }
}

#[tokio::test]
async fn after_a_restart_nothing_passes_until_the_boot_is_approved() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let a = won(&store, &ask("k", 1, gate.version)).await;
    assert_eq!(seq(&store).await, Some(1));
    let wrong = Boot { started: gate.running.started + 1, ..gate.running.clone() };
    assert_eq!(store.approve(gate.version, &wrong).await, Ok(Written::Lost));
    assert_eq!(store.approve(GateVersion(99), &gate.running).await, Ok(Written::Lost));

    region.cluster.kill().await.unwrap();
    let down = store.claim(&ask("down", 2, gate.version)).await.unwrap_err();
    assert!(!format!("{down:?}").contains("down\""), "{down}");
    assert!(matches!(store.look_up(&[id("k")]).await, Err(StoreError::Definite(_))));
    region.cluster.start().await.unwrap();

    let closed = eventually("the gate", || async { store.gate().await.ok() }).await;
    assert_eq!((closed.version, closed.is_open()), (gate.version, false));
    assert_eq!(store.claim(&ask("new", 3, gate.version)).await, Ok(ClaimReply::GateMoved));
    let own = Some((a.token, a.nonce));
    assert_eq!(store.claim(&again("k", 4, gate.version, own)).await, Ok(ClaimReply::GateMoved));
    let stored = answer(AnswerBody::NotKept);
    assert_eq!(store.settle(&a, &stored).await, Ok(Written::GateMoved));
    assert_eq!(store.release(&a).await, Ok(Written::GateMoved));
    assert_eq!(store.doubt(&a, None).await, Ok(Written::GateMoved));
    assert_eq!(seq(&store).await, None);
    assert!(matches!(only_row(&store, "k").await.state, State::Claimed { .. }));

    let gate = open(&store).await;
    assert_eq!(
        store.claim(&ask("new", 3, closed.version)).await,
        Ok(ClaimReply::GateMoved),
        "the version moved"
    );
    won(&store, &ask("new", 3, gate.version)).await;
    assert_eq!(store.settle(&a, &stored).await, Ok(Written::Done));
    assert_eq!(seq(&store).await, Some(2), "heartbeats go on where they were");
}

#[tokio::test]
async fn what_is_remembered_of_peers_never_goes_back() {
    let (_region, store, _gate) = Region::ready("eu#1").await;
    let peer = |origin: &str, applied, lag: Option<u64>| PeerMemory {
        imported: 0,
        origin: Origin::parse(origin).unwrap(),
        applied,
        lag: lag.map(Duration::from_millis),
    };
    assert_eq!(store.recall().await, Ok(vec![]));
    assert_eq!(store.remember(&[]).await, Ok(()));
    store.remember(&[peer("us#1", 9, None), peer("ap#2", 5, Some(80))]).await.unwrap();
    store.remember(&[peer("us#1", 7, Some(3))]).await.unwrap();
    assert_eq!(store.recall().await, Ok(vec![peer("ap#2", 5, Some(80)), peer("us#1", 9, Some(3))]));
    let beats = store.heartbeats().await.unwrap();
    assert_eq!(beats.iter().map(|beat| (beat.seq, beat.epoch)).collect::<Vec<_>>(), [(0, 1)]);
    assert_eq!(store.subscriptions().await, Ok(vec![]));
}

#[tokio::test]
async fn claims_and_look_ups_go_by_index_even_on_empty_leaves() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let admin = region.admin().await;
    admin.batch_execute("analyze").await.unwrap();
    // Building an index counts as a scan: wait until the connection that did it has reported and
    // gone.
    eventually("the end of init", || async {
        let sql = "select true where not exists (select from pg_stat_activity where application_name = 'onceway' and usename = 'postgres')";
        admin.query_opt(sql, &[]).await.unwrap()
    })
    .await;
    let scans = "select coalesce(sum(seq_scan), 0)::bigint, coalesce(sum(idx_scan), 0)::bigint \
                 from pg_stat_user_tables where relname like 'records%'";
    let before: i64 = admin.query_one(scans, &[]).await.unwrap().get(0);
    for nonce in 1..=20 {
        let key = format!("k{nonce}");
        let a = won(&store, &ask(&key, nonce, gate.version)).await;
        store.doubt(&a, None).await.unwrap();
        let b = won(&store, &again(&key, 100 + nonce, gate.version, Some((a.token, a.nonce)))).await;
        store.settle(&b, &answer(AnswerBody::NotKept)).await.unwrap();
        store.look_up(&[id(&key)]).await.unwrap();
        store.look_up(&[id(&key), id("none")]).await.unwrap();
    }
    // A backend reports its counters when it ends, or long after it fell idle.
    drop(store);
    let counted = eventually("the counters of scans", || async {
        let row = admin.query_one(scans, &[]).await.unwrap();
        let (sequential, by_index): (i64, i64) = (row.get(0), row.get(1));
        (by_index >= 160).then_some(sequential)
    })
    .await;
    assert_eq!(counted - before, 0, "sequential scans");
}

#[tokio::test]
async fn a_server_that_stands_still_costs_its_bound_and_no_more() {
    let (region, _store, gate) = Region::ready("eu#1").await;
    let config = StoreConfig {
        statement_within: Duration::from_millis(600),
        ..StoreConfig::new(region.origin.clone(), region.as_gateway().parse().unwrap())
    };
    let store = PgStore::new(&config).unwrap();
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
    eventually("a claim", || async { store.claim(&ask("later", 4, gate.version)).await.ok() }).await;
}

#[tokio::test]
async fn a_statement_that_waits_too_long_is_given_up_by_the_server() {
    let (region, _store, gate) = Region::ready("eu#1").await;
    let config = StoreConfig {
        statement_within: Duration::from_secs(2),
        ..StoreConfig::new(region.origin.clone(), region.as_gateway().parse().unwrap())
    };
    let store = PgStore::new(&config).unwrap();
    let admin = region.admin().await;
    admin.batch_execute("begin; update onceway.gate set version = version").await.unwrap();
    let error = store.claim(&ask("k", 1, gate.version)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Definite(text) if text.contains("57014")), "{error}");
    admin.batch_execute("rollback").await.unwrap();
    won(&store, &ask("k", 1, gate.version)).await;
}

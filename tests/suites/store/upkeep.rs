//! Reaping beside rows of other origins, as a takeover leaves them. A superuser writes the rows
//! that replication would bring; a test names the date of a row.

use crate::store::authority::waits;
use crate::store::support::*;
use onceway::ports::upkeep::Reaped;

fn short(ask: ClaimAsk) -> ClaimAsk {
    let lifetime = lifetime(Duration::ZERO, Duration::ZERO);
    ClaimAsk { terms: Terms { hold: Duration::ZERO, lifetime, ..ask.terms }, ..ask }
}

/// It goes with the life of the final row. A running row and one above it stay.
#[tokio::test]
async fn an_origin_turns_its_masked_open_rows_into_tombstones() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let masked = won(&store, &short(ask("masked", 1, gate.version))).await;
    done(store.doubt(&masked, None).await);
    let abandoned = won(&store, &short(ask("abandoned", 2, gate.version))).await;
    let mut long = short(ask("running", 3, gate.version));
    long.terms.hold = Duration::from_secs(600);
    let running = won(&store, &long).await;
    let above = won(&store, &short(ask("above", 4, gate.version))).await;
    done(store.release(&above).await);
    for key in ["masked", "abandoned", "running"] {
        region.arrives(key, 4, 2).await;
    }
    // The final attempt there is not above it, so the answer there is still replayed.
    region.arrives("above", 4, 1).await;
    assert_eq!(store.reap(100, None).await, Ok(Reaped { expired: 2, forgotten: 0, kept: 2 }));
    let own = async |attempt: &Attempt| {
        let rows = store.look_up(std::slice::from_ref(&attempt.id)).await.unwrap().remove(0);
        rows.into_iter().find(|row| row.origin == region.origin).map(|row| row.state)
    };
    assert_eq!(own(&masked).await, Some(State::Tombstone));
    assert_eq!(own(&abandoned).await, Some(State::Tombstone));
    assert_eq!(own(&above).await, Some(State::Released), "a tombstone would hide the answer there");
    assert!(matches!(own(&running).await, Some(State::Claimed { .. })), "a running attempt was taken away");
    // The winner's life counts, and not the own one, which is over.
    assert_eq!(store.reap(100, None).await.unwrap().forgotten, 0);
    let sql =
        "select count(*) from onceway.records where origin = 'eu#1' and state = 5 and due_ms > 86400000";
    let kept: i64 = value(&region.admin().await, sql).await;
    assert_eq!(kept, 2, "they stay as long as the final row's own tombstone");
}

/// A final row stays while a row of another origin is open under it, and goes once none is.
#[tokio::test]
async fn a_masking_tombstone_outlives_the_masked_row() {
    let (region, store, gate) = Region::ready("eu#1").await;
    for (key, state) in [("claimed", 1), ("doubt", 2), ("released", 3)] {
        let attempt = won(&store, &short(ask(key, state as u128, gate.version))).await;
        done(store.settle(&attempt, &answer()).await);
        region.arrives(key, state, 1).await;
    }
    assert_eq!(store.reap(100, None).await, Ok(Reaped { expired: 3, forgotten: 0, kept: 0 }));
    assert_eq!(store.reap(100, None).await, Ok(Reaped { expired: 0, forgotten: 0, kept: 3 }));
    assert_eq!(store.reap(100, None).await.unwrap().seen(), 0, "put off, not looked at over and over");
    for key in ["claimed", "doubt", "released"] {
        assert_eq!(store.look_up(&[id(key)]).await.unwrap().remove(0).len(), 2, "{key}");
    }
    let admin = region.admin().await;
    let sql = "delete from onceway.records where origin = 'other#1'; update onceway.records set due_ms = 0";
    admin.batch_execute(sql).await.unwrap();
    assert_eq!(store.reap(100, None).await.unwrap().forgotten, 3);
}

/// Schedule: the key of a stale entry is claimed again and in doubt again while the list is being
/// cleared. Without its entry, nobody would ever look at it again.
#[tokio::test]
async fn clearing_the_list_loses_no_doubt() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let mut last = Vec::new();
    for (nonce, key) in [(1, "first"), (2, "second")] {
        let attempt = won(&store, &ask(key, nonce, gate.version)).await;
        done(store.doubt(&attempt, None).await);
        done(store.release(&attempt).await);
        last.push(attempt);
    }
    let (mut holder, admin) = (region.admin().await, region.admin().await);
    let held = holder.transaction().await.unwrap();
    held.execute("select from onceway.doubts where key = 'first' for update", &[]).await.unwrap();
    let meanwhile = async {
        waits(&admin, "delete from onceway.doubts").await;
        let again = ClaimAsk { basis: known(Some(&last[1])), ..ask("second", 3, gate.version) };
        let again = won(&store, &again).await;
        done(store.doubt(&again, Some(Unclear { status: 500, ends_attempt: false, excerpt: None })).await);
        held.commit().await.unwrap();
        again
    };
    let (cleared, again) = tokio::join!(store.unlist(), meanwhile);
    cleared.unwrap();
    let listed = store.doubts(None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|listed| &listed.open.id).collect::<Vec<_>>(), [&again.id]);
}

/// A row that another writer holds is left alone and delays nothing.
#[tokio::test]
async fn reaping_waits_for_no_locked_row() {
    let (region, store, gate) = Region::ready("eu#1").await;
    for (nonce, key) in [(1, "free"), (2, "taken")] {
        let attempt = won(&store, &short(ask(key, nonce, gate.version))).await;
        done(store.release(&attempt).await);
    }
    let mut holder = region.admin().await;
    let held = holder.transaction().await.unwrap();
    held.execute("select from onceway.records where key = 'taken' for update", &[]).await.unwrap();
    assert_eq!(store.reap(100, None).await, Ok(Reaped { expired: 1, forgotten: 0, kept: 0 }));
    held.commit().await.unwrap();
    assert_eq!(store.look_up(&[id("taken")]).await.unwrap().remove(0)[0].state, State::Released);
}

/// Claims of one moment: a stretch that ended among them would leave the others behind for ever.
#[tokio::test]
async fn claims_of_one_moment_are_found_together() {
    let (region, store, gate) = Region::ready("eu#1").await;
    for nonce in 1..=5 {
        won(&store, &short(ask(&format!("tie-{nonce}"), nonce, gate.version))).await;
    }
    region.admin().await.execute("update onceway.records set held_ms = 0", &[]).await.unwrap();
    let page = store.claims(None, Duration::ZERO, 2).await.unwrap();
    assert_eq!(page.claims.len(), 5, "{page:?}");
}

/// If a key was released here and there, each row would wait for the other one to go.
#[tokio::test]
async fn two_released_rows_do_not_keep_one_another() {
    let (region, store, gate) = Region::ready("eu#1").await;
    for (key, state) in [("both", 3), ("covers", 2)] {
        let attempt = won(&store, &short(ask(key, state as u128, gate.version))).await;
        done(store.release(&attempt).await);
        region.arrives(key, state, 1).await;
    }
    assert_eq!(store.reap(100, None).await, Ok(Reaped { expired: 1, forgotten: 0, kept: 1 }));
    let both = store.look_up(&[id("both")]).await.unwrap().remove(0);
    assert!(both.iter().any(|row| row.state == State::Tombstone), "{both:?}");
    assert_eq!(store.look_up(&[id("covers")]).await.unwrap().remove(0).len(), 2, "a doubt is not hidden");
}

/// An accepted request that waits to be run keeps its key, however long it waits.
#[tokio::test]
async fn a_released_key_with_a_waiting_job_stays() {
    let (region, store, gate) = Region::ready("eu#1").await;
    let attempt = won(&store, &short(ask("waits", 1, gate.version))).await;
    done(store.release(&attempt).await);
    let sql = "insert into onceway.jobs (tenant, key, request_id, next_ms, forget_ms, sealed, request) \
               values ('acme', convert_to('waits', 'UTF8'), gen_random_uuid(), 0, 0, false, '')";
    let admin = region.admin().await;
    admin.batch_execute(sql).await.unwrap();
    assert_eq!(store.reap(100, None).await.unwrap().kept, 1);
    admin.batch_execute("delete from onceway.jobs; update onceway.records set due_ms = 0").await.unwrap();
    assert_eq!(store.reap(100, None).await.unwrap().expired, 1);
}

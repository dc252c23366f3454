//! The promises of [`Replica`] while the first copy of a peer's records runs: its heartbeats come
//! already, and are not whole (docs/protocol.md#rule-29).
//!
//! The bench has three stores that follow one another. This file must not say what follows from a
//! heartbeat that is not whole: the gateway does.

use super::bench::{answer, asked};
use super::replication::ReplicationBench;
use onceway_ports::store::{Attempt, ClaimReply, Heartbeat, Written};
use onceway_ports::{KeyStore, Replica};
use onceway_protocol::key::{Key, KeyId, Tenant};
use onceway_protocol::record::State;

/// The store that writes, and the one that copies.
const FROM: usize = 0;
const TO: usize = 1;
/// The pause between two looks at a copy that may end now.
const LOOKS: u32 = 10_000;

/// All clauses, for stores that have just begun to follow one another. The error names in words the
/// clause that broke.
///
/// # Errors
/// A clause does not hold, or the bench or one of its stores failed.
pub async fn suite<B: ReplicationBench>(bench: &B) -> Result<(), String> {
    for region in [FROM, TO] {
        let gate = bench.store(region).gate().await.map_err(words)?;
        bench.store(region).approve(gate.version, &gate.running).await.map_err(words)?;
    }
    let (before, missed, late) = (key("copying-before")?, key("copying-missed")?, key("copying-late")?);
    settles(bench, &before, 1).await?;
    let whole = beats(bench).await?;
    let seen = stands(bench, whole).await?;
    holds(seen.whole, "a heartbeat that came in its turn is whole")?;
    holds(has(bench, &before).await?, "its rows are here")?;

    bench.lose_slot(FROM, TO).await?;
    settles(bench, &missed, 2).await?;
    bench.begin_reseed(FROM, TO).await?;
    let kept = imported(bench).await?;
    holds(kept == whole, &format!("what was whole counts as imported up to {whole}, not {kept}"))?;
    holds(has(bench, &before).await?, "what was here stays readable")?;
    settles(bench, &late, 3).await?;
    let ahead = beats(bench).await?;
    let seen = stands(bench, ahead).await?;
    holds(!has(bench, &missed).await? && !has(bench, &late).await?, "bench: the copy ended by itself")?;
    holds(!seen.whole, "a heartbeat whose rows are still copied is not whole")?;

    // A copy that is made anew before it was whole no longer counts.
    bench.lose_slot(FROM, TO).await?;
    bench.begin_reseed(FROM, TO).await?;
    let kept = imported(bench).await?;
    holds(kept == whole, &format!("a copy that was never whole counts for nothing, not up to {kept}"))?;
    let ahead = beats(bench).await?;
    holds(!stands(bench, ahead).await?.whole, "the copy made anew is not whole either")?;

    bench.copied(FROM, TO).await?;
    for _ in 0..LOOKS {
        // The order matters: a heartbeat that is whole at the first look has its rows at the
        // second.
        let seen = stands(bench, ahead).await?;
        if seen.whole {
            holds(has(bench, &missed).await? && has(bench, &late).await?, "a whole heartbeat has its rows")?;
            return Ok(());
        }
    }
    Err("copying: a copy that ended was never whole".to_owned())
}

fn holds(holds: bool, clause: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("copying: {clause}")) }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn key(name: &str) -> Result<KeyId, String> {
    let tenant = Tenant::parse("copying").map_err(words)?;
    Ok(KeyId::new(tenant, Key::parse(name).map_err(words)?))
}

async fn settles<B: ReplicationBench>(bench: &B, id: &KeyId, nonce: u128) -> Result<(), String> {
    let store = bench.store(FROM);
    let ask = asked(id, nonce, store.gate().await.map_err(words)?.version);
    let ClaimReply::Won { token, .. } = store.claim(&ask).await.map_err(words)? else {
        return Err("bench: a new key was not won".to_owned());
    };
    let attempt = Attempt { id: id.clone(), token, nonce: ask.nonce };
    match store.settle(&attempt, &answer()).await.map_err(words)? {
        Written::Done => Ok(()),
        Written::Lost | Written::GateMoved => Err("bench: an own claim was not settled".to_owned()),
    }
}

async fn beats<B: ReplicationBench>(bench: &B) -> Result<u64, String> {
    let beat = bench.store(FROM).beat(None).await.map_err(words)?;
    Ok(beat.ok_or("bench: an open gate lets no heartbeat be written")?.seq)
}

/// The writer's heartbeat as the copying store shows it, once this one has arrived.
async fn stands<B: ReplicationBench>(bench: &B, beat: u64) -> Result<Heartbeat, String> {
    bench.shows(TO, FROM, beat).await?;
    let all = bench.store(TO).heartbeats().await.map_err(words)?;
    let one = all.into_iter().find(|one| one.origin == bench.origin(FROM));
    one.ok_or_else(|| "copying: a heartbeat that came is gone".to_owned())
}

async fn has<B: ReplicationBench>(bench: &B, id: &KeyId) -> Result<bool, String> {
    let rows = bench.store(TO).look_up(std::slice::from_ref(id)).await.map_err(words)?;
    Ok(rows.concat().iter().any(|row| matches!(row.state, State::Settled { .. })))
}

/// The heartbeat up to which the writer's rows count as imported at the copying store.
async fn imported<B: ReplicationBench>(bench: &B) -> Result<u64, String> {
    let all = bench.store(TO).recall().await.map_err(words)?;
    Ok(all.iter().find(|one| one.origin == bench.origin(FROM)).map_or(0, |one| one.imported))
}

//! Random histories of calls on a store, with each reply, line by line: recorded from a real store,
//! and replayed elsewhere. They show events between calls that nobody thought of together. Lines
//! hold nothing that differs from run to run: no dates, no gate versions.

use super::bench::*;

/// Number of keys of one history: few, so that calls meet.
const KEYS: u64 = 4;
const CALLS: u32 = 80;
const HISTORIES: u64 = 12;

pub(super) struct Draw(pub(super) u64);

impl Draw {
    /// A number below `count` (SplitMix64).
    pub(super) fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % count
    }
}

struct Known {
    id: KeyId,
    asked: Option<ClaimAsk>,
    won: Option<Attempt>,
    arrived: bool,
}

/// Plays the history of a seed. Returns each call with its reply.
async fn played(bench: &impl StoreBench, seed: u64) -> Vec<String> {
    let mut draw = Draw(seed);
    let known = |number| Known {
        id: id(bench, &format!("history-{seed}-{number}")),
        asked: None,
        won: None,
        arrived: false,
    };
    let mut keys: Vec<Known> = (0..KEYS).map(known).collect();
    let mut lines = vec![format!("history {seed}")];
    for call in 0..CALLS {
        let number = draw.below(KEYS) as usize;
        let story = one(bench, &mut draw, &mut keys[number], u128::from(seed) << 32 | u128::from(call)).await;
        lines.push(format!("{call:>2} key {number} {story}"));
    }
    lines
}

async fn one(bench: &impl StoreBench, draw: &mut Draw, key: &mut Known, nonce: u128) -> String {
    match draw.below(40) {
        0..6 => claims(bench, key, asks(bench, &key.id, nonce).await, "claim as absent").await,
        6..14 => {
            let basis = standing_on(&rows(bench, &key.id).await, &bench.origin());
            let ask = asks_on(bench, &key.id, nonce, basis).await;
            claims(bench, key, ask, "claim over what is seen").await
        }
        14..17 => match key.asked.clone() {
            Some(ask) => claims(bench, key, ask, "claim again").await,
            None => "claim again: never claimed".to_owned(),
        },
        17 => {
            let ask = asks(bench, &key.id, nonce).await;
            let ask = ClaimAsk { gate: GateVersion(ask.gate.0 + 1), ..ask };
            claims(bench, key, ask, "claim under another gate").await
        }
        18..33 => match key.won.clone() {
            Some(attempt) => ends(bench, draw, attempt).await,
            None => "end: nothing was won".to_owned(),
        },
        33..36 if !key.arrived => {
            key.arrived = true;
            let states = [Foreign::Claimed, Foreign::InDoubt, Foreign::Released, Foreign::Settled];
            let state = states[draw.below(4) as usize];
            let token = bench.arrives(&key.id, state).await;
            format!("another region's row arrives, {state:?} {token}")
        }
        33..39 => format!("look up: {}", shown(bench, &rows(bench, &key.id).await)),
        _ => {
            // Nothing is written before the approval, not even by a claim from before.
            let ask = asks(bench, &key.id, nonce).await;
            bench.restart().await;
            claims(bench, key, ask, "restart, then claim").await
        }
    }
}

async fn claims(bench: &impl StoreBench, key: &mut Known, ask: ClaimAsk, what: &str) -> String {
    let (won, story) = said(&ask, claim(bench, &ask).await, |rows| shown(bench, rows));
    key.won = won.or(key.won.take());
    key.asked = Some(ask);
    format!("{what}: {story}")
}

/// The attempt that a claim won, and its reply in words.
pub(super) fn said(
    ask: &ClaimAsk,
    reply: ClaimReply,
    shown: impl FnOnce(&[Row]) -> String,
) -> (Option<Attempt>, String) {
    match reply {
        ClaimReply::Won { token, .. } => {
            (Some(Attempt { id: ask.id.clone(), token, nonce: ask.terms.nonce }), format!("won {token}"))
        }
        ClaimReply::Found(rows) => (None, format!("found {}", shown(&rows))),
        ClaimReply::GateMoved => (None, "the gate moved".to_owned()),
    }
}

async fn ends(bench: &impl StoreBench, draw: &mut Draw, mut attempt: Attempt) -> String {
    let strange = draw.below(6) == 0;
    if strange {
        attempt.nonce = Nonce(attempt.nonce.0 + (1 << 100));
    }
    let (what, written) = match draw.below(4) {
        0 => ("settle", settle(bench, &attempt, &answer()).await),
        1 => ("release", release(bench, &attempt).await),
        2 => ("doubt", doubt(bench, &attempt, None).await),
        _ => ("doubt with 500", doubt(bench, &attempt, Some(500)).await),
    };
    let by = if strange { " by a stranger" } else { "" };
    format!("{what} {}{by}: {written:?}", attempt.token)
}

pub(super) fn standing_on(rows: &[Row], me: &Origin) -> Basis {
    let Some(attempt) = rows.iter().map(|row| row.token.attempt).max() else { return Basis::Absent };
    let own = rows.iter().find(|row| row.origin == *me).map(|row| (row.token, row.nonce));
    let is_open = |row: &&Row| matches!(row.state, State::Claimed { .. } | State::InDoubt { .. });
    let open = rows.iter().filter(|row| row.origin != *me).filter(is_open);
    Basis::Known { own, over: open.map(|row| (row.origin.clone(), row.token)).collect(), attempt }
}

/// Rows, the own one first, without anything that time changes.
fn shown(bench: &impl StoreBench, rows: &[Row]) -> String {
    let me = bench.origin();
    let row = |row: &Row| format!("{} {}", if row.origin == me { "own" } else { "other" }, described(row));
    let mut all: Vec<String> = rows.iter().map(row).collect();
    all.sort_by_key(|text| text.starts_with("other"));
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// A row without its origin, and without anything that time changes.
pub(super) fn described(row: &Row) -> String {
    let state = match &row.state {
        State::Claimed { .. } => "claimed".to_owned(),
        State::InDoubt { status, .. } => format!("in doubt {}", status.unwrap_or(0)),
        State::Released => "released".to_owned(),
        State::Settled { answer, .. } => format!("settled {}", answer.status),
        State::Tombstone => "tombstone".to_owned(),
    };
    let over: Vec<String> = row.over.iter().map(|(_, token)| format!(" over {token}")).collect();
    format!("{} {state}{}", row.token, over.concat())
}

/// All recorded histories as one text. Both sides compare it, and the real side also records it.
pub async fn all(bench: &impl StoreBench) -> String {
    let mut text = String::new();
    for seed in 0..HISTORIES {
        text.extend(played(bench, seed).await.into_iter().flat_map(|line| [line, "\n".to_owned()]));
    }
    text
}

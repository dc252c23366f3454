//! The port `KeyStore`: claims, outcomes, look-ups, the gate.
//!
//! Every claim and every outcome is one statement that compares the values on which it relies.
//! `rows` reads the rows. No statement is repeated.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Json;

use super::super::views::from_value;
use super::batches::{Claim, Settlement};
use super::gather::Asked;
use super::params::{self, Named, Params, StoredAnswer, big, pair, pairs};
use super::provision::SCHEMA;
use super::rows::{self, Columns, Standing};
use super::run::Call;
use super::{Lane, PgStore};
use crate::ports::KeyStore;
use crate::ports::store::{
    Attempt, Boot, ClaimAsk, ClaimReply, Gate, GateVersion, StoreError, Unclear, Written,
};
use crate::protocol::authority::{GateState, Pending};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, Basis, Row};

impl KeyStore for PgStore {
    async fn claim(&self, ask: &ClaimAsk) -> Result<ClaimReply, StoreError> {
        let begun = Instant::now();
        let shares = Claim::shares(ask);
        let asked = if shares { self.claims.ask(|| Ok(Claim::of(ask))).await? } else { Asked::Silent };
        match asked {
            Asked::Fact(rows) => Claim::reply(&rows),
            // Boxes: every request would move the room for them.
            Asked::Silent => Box::pin(self.claim_alone(ask, self.left(begun))).await,
            Asked::Alone(_place) => Box::pin(self.claim_alone(ask, self.within)).await,
        }
    }

    async fn settle(&self, attempt: &Attempt, answer: &Answer) -> Result<Written, StoreError> {
        let begun = Instant::now();
        let call = Call::writes("a settlement", &self.sql.settle);
        let stored = StoredAnswer::of(call.what, answer)?;
        let shared = || Settlement::of(attempt, stored.clone());
        let shares = Settlement::shares(&stored);
        let asked = if shares { self.settlements.ask(shared).await? } else { Asked::Silent };
        let within = match asked {
            Asked::Fact(()) => return Ok(Written::Done),
            Asked::Silent | Asked::Alone(_) => self.left(begun),
        };
        Box::pin(self.end(within, call, attempt, &stored.params(), &Outcome::Settled(answer))).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Written, StoreError> {
        let call = Call::writes("a release", &self.sql.release);
        self.end(self.within, call, attempt, &[], &Outcome::Released).await
    }

    async fn doubt(&self, attempt: &Attempt, answer: Option<Unclear>) -> Result<Written, StoreError> {
        let call = Call::writes("a doubt", &self.sql.doubt);
        let status = answer.as_ref().map(|answer| params::status(call.what, answer.status)).transpose()?;
        let ended = answer.as_ref().is_some_and(|answer| answer.ends_attempt);
        let excerpt = answer.and_then(|answer| answer.excerpt);
        let params: Params<'_> = &[&status, &ended, &excerpt];
        self.end(self.within, call, attempt, params, &Outcome::InDoubt).await
    }

    async fn look_up(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.rows(Lane::Records, ids).await
    }

    async fn look_up_beside(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.rows(Lane::Admin, ids).await
    }

    fn breaker_status(&self) -> Option<String> {
        let all: Vec<String> =
            [&self.writes, &self.reads].iter().filter_map(|guard| guard.breaker.refuses()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    async fn gate(&self) -> Result<Gate, StoreError> {
        self.read_gate(Lane::Control).await
    }

    async fn gate_again(&self) -> Result<Gate, StoreError> {
        self.read_gate(Lane::Records).await
    }

    async fn approve(&self, version: GateVersion, boot: &Boot) -> Result<Written, StoreError> {
        let call = Call::writes("approving a boot", &self.sql.approve);
        let version = big(call.what, version.0)?;
        let (system, timeline) = (boot.system.cast_signed(), boot.timeline.cast_signed());
        self.write(Lane::Control, call, &[&version, &system, &timeline, &boot.started]).await
    }
}

enum Outcome<'a> {
    Settled(&'a Answer),
    Released,
    InDoubt,
}

impl PgStore {
    fn left(&self, begun: Instant) -> Duration {
        self.within.saturating_sub(begun.elapsed())
    }

    async fn claim_alone(&self, ask: &ClaimAsk, within: Duration) -> Result<ClaimReply, StoreError> {
        const WHAT: &str = "a claim";
        let asked = params::claim(WHAT, ask)?;
        let asked = params::borrowed(&asked);
        let (sql, params) = match &ask.basis {
            Basis::Absent => (&self.sql.claim, &asked[..17]),
            Basis::Known { .. } => (&self.sql.reclaim, &asked[..]),
        };
        rows::claim_reply(WHAT, &self.on_records(within, Call::writes(WHAT, sql), params).await?)
    }

    async fn rows(&self, lane: Lane, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        let sql = if ids.len() == 1 { &self.sql.look_up_one } else { &self.sql.look_up_many };
        let call = Call::reads("a look-up", sql);
        let read = |row: &PgRow| Ok((rows::place(row)?, rows::standing(row)?));
        let found = match ids {
            [] => return Ok(Vec::new()),
            [id] => {
                let (tenant, key) = pair(id);
                self.list(lane, call, &[&tenant, &key], read).await?
            }
            [_, _, ..] => {
                let (tenants, keys) = pairs(ids);
                self.list(lane, call, &[&tenants, &keys], read).await?
            }
        };
        let mut all: Vec<Vec<Standing>> = ids.iter().map(|_| Vec::new()).collect();
        for (at, row) in found {
            all.get_mut(at).ok_or_else(|| call.unreadable("ord"))?.push(row);
        }
        Ok(all.into_iter().map(rows::of_key).collect())
    }

    async fn read_gate(&self, lane: Lane) -> Result<Gate, StoreError> {
        let call = Call::reads("reading the gate", &self.sql.gate);
        let found = self.on(lane, call, &[]).await?;
        let [row] = found.as_slice() else {
            return Err(call.not_sent("the store has no gate: run `onceway store init`"));
        };
        let unreadable = |why| call.unreadable(why);
        let of: &str = rows::get(row, "origin").map_err(unreadable)?;
        if of != self.origin.to_string() {
            // A gateway at another region's store must never get a version to claim with.
            let why = format!("the store belongs to {of}, not to {}: check the address", self.origin);
            return Err(call.not_sent(&why));
        }
        if let Some(why) = unfit(row).map_err(unreadable)? {
            return Err(call.not_sent(&why));
        }
        read_gate(row).map_err(unreadable)
    }

    /// Writes an outcome under a token and nonce. A second statement says why nothing changed.
    async fn end(
        &self,
        within: Duration,
        call: Call<'_>,
        attempt: &Attempt,
        outcome_params: Params<'_>,
        outcome: &Outcome<'_>,
    ) -> Result<Written, StoreError> {
        let named = Named::of(call.what, attempt)?;
        let all = [&named.params(), outcome_params].concat();
        let changed = self.on_records(within, call, &all).await?;
        match (changed.first(), outcome) {
            (Some(row), Outcome::Settled(_)) => {
                let other = rows::get::<bool>(row, "other").map_err(|why| call.unreadable(why))?;
                // The stored answer is that of another origin.
                return Ok(if other { Written::Lost } else { Written::Done });
            }
            (Some(_), Outcome::Released | Outcome::InDoubt) => return Ok(Written::Done),
            (None, _) => {}
        }
        let call = Call::reads(call.what, &self.sql.standing);
        self.read(Lane::Records, call, &named.params(), |found| match found {
            [row] => standing(row, outcome),
            _ => Err("rows"),
        })
        .await
    }
}

/// Meaning of a write under this token and nonce that changed nothing.
fn standing(row: &PgRow, outcome: &Outcome<'_>) -> Result<Written, rows::Unreadable> {
    let state: Option<i16> = rows::get(row, "state")?;
    let (done, allowed): (bool, &[i16]) = match outcome {
        // Another answer under the same token (a probe's, for example) is not ours: it came first,
        // and ours is lost.
        Outcome::Settled(answer) => (
            state == Some(rows::SETTLED) && rows::answer(&Columns::of(row))? == **answer,
            &[rows::CLAIMED, rows::IN_DOUBT],
        ),
        Outcome::Released => (state == Some(rows::RELEASED), &[rows::CLAIMED, rows::IN_DOUBT]),
        Outcome::InDoubt => (state == Some(rows::IN_DOUBT), &[rows::CLAIMED]),
    };
    if done {
        return Ok(Written::Done);
    }
    // The boot held back a write that the row would allow. That is so even if the boot was approved
    // between the two statements.
    let held_back = state.is_some_and(|state| allowed.contains(&state));
    Ok(if held_back || !rows::get::<bool>(row, "open")? { Written::GateMoved } else { Written::Lost })
}

/// Reason why a gateway of this program may not run over this store, which another program made.
fn unfit(row: &PgRow) -> Result<Option<String>, rows::Unreadable> {
    let (schema, from) = (rows::get::<i32>(row, "schema_version")?, rows::get::<i32>(row, "gateways_from")?);
    Ok(match (schema < SCHEMA, from > SCHEMA) {
        (true, _) => Some(format!(
            "the store's schema is version {schema} and this onceway needs {SCHEMA}: run its `onceway store init` first"
        )),
        (false, true) => Some(format!(
            "the store's schema needs gateways of schema {from} or newer and this onceway is of {SCHEMA}: run the newer onceway here"
        )),
        (false, false) => None,
    })
}

fn read_gate(row: &PgRow) -> Result<Gate, rows::Unreadable> {
    let boot = |system, timeline, started| -> Result<Boot, rows::Unreadable> {
        let system = rows::get::<i64>(row, system)?.cast_unsigned();
        Ok(Boot { system, timeline: rows::get::<i32>(row, timeline)?.cast_unsigned(), started })
    };
    let approved = rows::get::<Option<i64>>(row, "boot_started")?;
    Ok(Gate {
        state: gate_state(row)?,
        version: GateVersion(rows::count(row, "version")?),
        epoch: rows::count(row, "epoch")?,
        approved: approved.map(|started| boot("boot_system", "boot_timeline", started)).transpose()?,
        running: boot("system_identifier", "timeline_id", rows::get(row, "started")?)?,
    })
}

/// The gate's state as views made it; `None` before the register was founded.
fn gate_state(row: &PgRow) -> Result<Option<GateState>, rows::Unreadable> {
    let Some(Json(view)) = rows::get::<Option<Json<Value>>>(row, "view")? else { return Ok(None) };
    let view = from_value(&view)?;
    let Json(since) = rows::get(row, "since")?;
    let pending = rows::get::<Option<Json<Pending>>>(row, "pending")?.map(|Json(pending)| pending);
    let Json(waived) = rows::get(row, "waivers")?;
    Ok(Some(GateState { view, since, pending, waived }))
}

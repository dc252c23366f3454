//! The port `KeyStore`: claims, outcomes, look-ups, the gate.
//!
//! Every claim and every outcome is one statement that compares the values on which it relies.
//! `rows` reads the rows. This file must not repeat a statement, nor read a meaning into rows.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::super::views::from_value;
use super::batches::{Claim, Settlement};
use super::errors::{self, Effect};
use super::gather::Asked;
use super::numbers::{big, millis, promised, small};
use super::provision::SCHEMA;
use super::rows::{Columns, Standing, StoredAnswer};
use super::run::{Call, Params};
use super::{Lane, PgStore, numbers, rows};
use crate::ports::KeyStore;
use crate::ports::store::{
    Attempt, Boot, ClaimAsk, ClaimReply, Gate, GateVersion, StoreError, Unclear, Written,
};
use crate::protocol::authority::{GateState, Pending};
use crate::protocol::decide::Basis;
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, Row};

impl KeyStore for PgStore {
    async fn claim(&self, ask: &ClaimAsk) -> Result<ClaimReply, StoreError> {
        let begun = Instant::now();
        let asked = match Claim::shares(ask) {
            true => self.claims.ask(|| Ok(Claim::of(ask))).await?,
            false => Asked::Silent,
        };
        match asked {
            Asked::Fact(rows) => Claim::reply(&rows),
            // Boxes: every request would move the room for them.
            Asked::Silent => Box::pin(self.claim_alone(ask, self.left(begun))).await,
            Asked::Alone(_place) => Box::pin(self.claim_alone(ask, self.within)).await,
        }
    }

    async fn settle(&self, attempt: &Attempt, answer: &Answer) -> Result<Written, StoreError> {
        const WHAT: &str = "a settlement";
        let begun = Instant::now();
        let stored = StoredAnswer::of(WHAT, answer)?;
        let (outcome, sql) = (Outcome::Settled(answer), &self.sql.settle);
        let shared = || Settlement::of(attempt, stored.clone());
        let asked = match Settlement::shares(&stored) {
            true => self.settlements.ask(shared).await?,
            false => Asked::Silent,
        };
        let within = match asked {
            Asked::Fact(()) => return Ok(Written::Done),
            Asked::Silent | Asked::Alone(_) => self.left(begun),
        };
        Box::pin(self.end(within, WHAT, attempt, sql, &stored.params(), &outcome)).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Written, StoreError> {
        self.end(self.within, "a release", attempt, &self.sql.release, &[], &Outcome::Released).await
    }

    async fn doubt(&self, attempt: &Attempt, answer: Option<Unclear>) -> Result<Written, StoreError> {
        const WHAT: &str = "a doubt";
        let status = answer.as_ref().map(|answer| numbers::status(WHAT, answer.status)).transpose()?;
        let ended = answer.as_ref().is_some_and(|answer| answer.ends_attempt);
        let excerpt = answer.and_then(|answer| answer.excerpt);
        let params: Params<'_> = &[&status, &ended, &excerpt];
        self.end(self.within, WHAT, attempt, &self.sql.doubt, params, &Outcome::InDoubt).await
    }

    async fn look_up(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.rows(Lane::Records, ids).await
    }

    async fn look_up_beside(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.rows(Lane::Admin, ids).await
    }

    fn breaker_status(&self) -> Option<String> {
        let all: Vec<String> = [&self.writes, &self.reads].iter().filter_map(|all| all.refuses()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    async fn gate(&self) -> Result<Gate, StoreError> {
        self.read_gate(Lane::Control).await
    }

    async fn gate_again(&self) -> Result<Gate, StoreError> {
        self.read_gate(Lane::Records).await
    }

    async fn approve(&self, version: GateVersion, boot: &Boot) -> Result<Written, StoreError> {
        const WHAT: &str = "approving a boot";
        let call = Call::writes(WHAT, &self.sql.approve);
        let version = big(WHAT, version.0)?;
        let (system, timeline) = (boot.system.cast_signed(), boot.timeline.cast_signed());
        self.write(Lane::Control, call, &[&version, &system, &timeline, &boot.started]).await
    }
}

/// End of an attempt.
enum Outcome<'a> {
    Settled(&'a Answer),
    Released,
    InDoubt,
}

impl PgStore {
    /// The time that a call has left.
    fn left(&self, begun: Instant) -> Duration {
        self.within.saturating_sub(begun.elapsed())
    }

    /// Claims by a statement of its own.
    async fn claim_alone(&self, ask: &ClaimAsk, within: Duration) -> Result<ClaimReply, StoreError> {
        const WHAT: &str = "a claim";
        let (tenant, key) = (ask.id.tenant().as_str(), ask.id.key().as_bytes());
        let (nonce, request_id) = (Uuid::from_u128(ask.nonce.0), Uuid::from_u128(ask.request_id.0));
        let gate = big(WHAT, ask.gate.0)?;
        let raw = ask.fingerprint.raw.as_bytes().as_slice();
        let canonical = ask.fingerprint.canonical.as_ref().map(|digest| digest.as_bytes().as_slice());
        let hold = millis(ask.hold);
        let promised = promised(&ask.lifetime);
        let (skew, tombstone) = (millis(ask.lifetime.skew), millis(ask.lifetime.tombstone));
        let (route, path) = (&*ask.route, &ask.path);
        let (risk, settle_time) = (rows::names(&ask.risk), millis(ask.settle_time));
        let rule = rows::rule(ask.recovery);
        let principal = ask.principal.as_ref().map(|digest| digest.as_bytes().as_slice());
        let life: Params<'_> =
            &[&hold, &promised, &skew, &tombstone, &route, path, &principal, &risk, &settle_time, &rule];
        let named: Params<'_> = &[&tenant, &key, &gate, &nonce, &request_id, &raw, &canonical];
        let rows = match &ask.basis {
            Basis::Absent => {
                let call = Call::writes(WHAT, &self.sql.claim);
                self.on_records(within, call, &[named, life].concat()).await?
            }
            Basis::Known { own, over, attempt } => {
                let call = Call::writes(WHAT, &self.sql.reclaim);
                let attempt = small(WHAT, *attempt)?;
                let own_epoch = own.map(|(token, _)| big(WHAT, token.epoch)).transpose()?;
                let own_attempt = own.map(|(token, _)| small(WHAT, token.attempt)).transpose()?;
                let own_nonce = own.map(|(_, nonce)| Uuid::from_u128(nonce.0));
                let over = rows::over_json(over);
                let basis: Params<'_> = &[&attempt, &own_epoch, &own_attempt, &own_nonce, &over];
                self.on_records(within, call, &[named, life, basis].concat()).await?
            }
        };
        rows::claim_reply(WHAT, &rows)
    }

    /// Reads all rows of each key.
    async fn rows(&self, lane: Lane, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        const WHAT: &str = "a look-up";
        let call = |sql| Call::reads(WHAT, sql);
        let found = match ids {
            [] => return Ok(Vec::new()),
            [id] => {
                let (tenant, key) = (id.tenant().as_str(), id.key().as_bytes());
                self.on(lane, call(&self.sql.look_up_one), &[&tenant, &key]).await?
            }
            [_, _, ..] => {
                let tenants: Vec<&str> = ids.iter().map(|id| id.tenant().as_str()).collect();
                let keys: Vec<&[u8]> = ids.iter().map(|id| id.key().as_bytes()).collect();
                self.on(lane, call(&self.sql.look_up_many), &[&tenants, &keys]).await?
            }
        };
        let unreadable = |why| errors::unreadable(WHAT, Effect::Reads, why);
        let mut all: Vec<Vec<Standing>> = ids.iter().map(|_| Vec::new()).collect();
        for row in &found {
            let read = || {
                let at = usize::try_from(rows::get::<i64>(row, "ord")?).map_err(|_| "ord")?;
                Ok((at.checked_sub(1).ok_or("ord")?, rows::standing(row)?))
            };
            let (at, row) = read().map_err(unreadable)?;
            all.get_mut(at).ok_or_else(|| unreadable("ord"))?.push(row);
        }
        Ok(all.into_iter().map(rows::of_key).collect())
    }

    /// Reads the gate.
    async fn read_gate(&self, lane: Lane) -> Result<Gate, StoreError> {
        const WHAT: &str = "reading the gate";
        let call = Call::reads(WHAT, &self.sql.gate);
        let found = self.on(lane, call, &[]).await?;
        let [row] = found.as_slice() else {
            return Err(errors::not_sent(WHAT, "the store has no gate: run `onceway store init`"));
        };
        let unreadable = |why| call.unreadable(why);
        let of: &str = rows::get(row, "origin").map_err(unreadable)?;
        if of != self.origin.to_string() {
            // A gateway with the address of another region's store must never get a version to
            // claim with.
            let why = format!("the store belongs to {of}, not to {}: check the address", self.origin);
            return Err(errors::not_sent(WHAT, &why));
        }
        if let Some(why) = unfit(row).map_err(unreadable)? {
            return Err(errors::not_sent(WHAT, &why));
        }
        read_gate(row).map_err(unreadable)
    }

    /// Writes an outcome under a token and nonce. If that changes nothing, a second statement says
    /// why.
    async fn end(
        &self,
        within: Duration,
        what: &'static str,
        attempt: &Attempt,
        sql: &str,
        outcome_params: Params<'_>,
        outcome: &Outcome<'_>,
    ) -> Result<Written, StoreError> {
        let (tenant, key) = (attempt.id.tenant().as_str(), attempt.id.key().as_bytes());
        let (epoch, number) = (big(what, attempt.token.epoch)?, small(what, attempt.token.attempt)?);
        let nonce = Uuid::from_u128(attempt.nonce.0);
        let named: Params<'_> = &[&tenant, &key, &epoch, &number, &nonce];
        let all = [named, outcome_params].concat();
        let changed = self.on_records(within, Call::writes(what, sql), &all).await?;
        match (changed.first(), outcome) {
            (Some(row), Outcome::Settled(_)) => {
                let other = rows::get::<bool>(row, "other");
                let other = other.map_err(|why| errors::unreadable(what, Effect::Writes, why))?;
                // The stored answer is that of another origin.
                return Ok(if other { Written::Lost } else { Written::Done });
            }
            (Some(_), Outcome::Released | Outcome::InDoubt) => return Ok(Written::Done),
            (None, _) => {}
        }
        let call = Call::reads(what, &self.sql.standing);
        let found = self.on(Lane::Records, call, named).await?;
        let why_not = |why| errors::unreadable(what, Effect::Reads, why);
        let [row] = found.as_slice() else { return Err(why_not("rows")) };
        standing(row, outcome).map_err(why_not)
    }
}

/// Meaning of a write under this token and nonce that changed nothing.
fn standing(row: &tokio_postgres::Row, outcome: &Outcome<'_>) -> Result<Written, rows::Unreadable> {
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
fn unfit(row: &tokio_postgres::Row) -> Result<Option<String>, rows::Unreadable> {
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

fn read_gate(row: &tokio_postgres::Row) -> Result<Gate, rows::Unreadable> {
    let approved = match rows::get::<Option<i64>>(row, "boot_started")? {
        None => None,
        Some(started) => Some(Boot {
            system: rows::get::<i64>(row, "boot_system")?.cast_unsigned(),
            timeline: rows::get::<i32>(row, "boot_timeline")?.cast_unsigned(),
            started,
        }),
    };
    Ok(Gate {
        state: gate_state(row)?,
        version: GateVersion(rows::count(row, "version")?),
        epoch: rows::count(row, "epoch")?,
        approved,
        running: Boot {
            system: rows::get::<i64>(row, "system_identifier")?.cast_unsigned(),
            timeline: rows::get::<i32>(row, "timeline_id")?.cast_unsigned(),
            started: rows::get(row, "started")?,
        },
    })
}

/// The gate's state as views made it; `None` before the register was founded.
fn gate_state(row: &tokio_postgres::Row) -> Result<Option<GateState>, rows::Unreadable> {
    let Some(Json(view)) = rows::get::<Option<Json<Value>>>(row, "view")? else { return Ok(None) };
    let view = from_value(&view)?;
    let Json(since) = rows::get(row, "since")?;
    let pending = rows::get::<Option<Json<Pending>>>(row, "pending")?.map(|Json(pending)| pending);
    let Json(waived) = rows::get(row, "waivers")?;
    Ok(Some(GateState { view, since, pending, waived }))
}

//! The port `Jobs`: accepted requests, each stored with its record in one statement and taken by
//! one worker at a time.
//!
//! `sealing` has the bytes of a request; `keys` reads the rows that an acceptance found. A request
//! that cannot be read is passed on as unreadable, never dropped. This file must not repeat a
//! statement, nor know the result of a run.

use std::time::Duration;

use uuid::Uuid;

use super::errors::{self, Effect};
use super::numbers::{big, millis, promised, small};
use super::run::{Call, Params};
use super::{Lane, PgStore, rows, sealing, upkeep};
use crate::ports::jobs::{Act, Acted, Content, Job, JobLoad, JobRow, Jobs, StoredRequest, Taken, Turns};
use crate::ports::store::{ClaimAsk, ClaimReply, StoreError, Written};
use crate::protocol::decide::Basis;
use crate::protocol::job::JobState;
use crate::protocol::key::{KeyId, Tenant};
use crate::protocol::record::{Nonce, RequestId};
use crate::protocol::time::Date;

/// Numbers of `state` in the table of jobs.
const WAITING: i16 = 1;
const DEAD: i16 = 2;

impl Jobs for PgStore {
    async fn accept(
        &self,
        ask: &ClaimAsk,
        request: &StoredRequest,
        keep: Duration,
    ) -> Result<ClaimReply, StoreError> {
        const WHAT: &str = "an acceptance";
        let too_long = || errors::not_sent(WHAT, "a part of the request is too long to be stored");
        let plain = sealing::encode(request).ok_or_else(too_long)?;
        let (sealed, request) = match &self.sealer {
            None => (false, plain),
            Some(sealer) => {
                let no_dice = || errors::not_sent(WHAT, "the request cannot be sealed: no random bytes");
                (true, sealer.seal(&ask.id, plain).ok_or_else(no_dice)?)
            }
        };
        let (tenant, key) = (ask.id.tenant().as_str(), ask.id.key().as_bytes());
        let (nonce, request_id) = (Uuid::from_u128(ask.nonce.0), Uuid::from_u128(ask.request_id.0));
        let gate = big(WHAT, ask.gate.0)?;
        let raw = ask.fingerprint.raw.as_bytes().as_slice();
        let canonical = ask.fingerprint.canonical.as_ref().map(|digest| digest.as_bytes().as_slice());
        let (hold, keep) = (millis(ask.hold), millis(keep));
        let promised = promised(&ask.lifetime);
        let (skew, tombstone) = (millis(ask.lifetime.skew), millis(ask.lifetime.tombstone));
        let (route, path) = (&*ask.route, &ask.path);
        let (risk, settle_time) = (rows::names(&ask.risk), millis(ask.settle_time));
        let rule = rows::rule(ask.recovery);
        let principal = ask.principal.as_ref().map(|digest| digest.as_bytes().as_slice());
        let (own, over, attempt) = match &ask.basis {
            Basis::Absent => (None, None, 0),
            Basis::Known { own, over, attempt } => {
                (*own, Some(rows::over_json(over)), small(WHAT, *attempt)?)
            }
        };
        let own_epoch = own.map(|(token, _)| big(WHAT, token.epoch)).transpose()?;
        let own_attempt = own.map(|(token, _)| small(WHAT, token.attempt)).transpose()?;
        let own_nonce = own.map(|(_, nonce)| Uuid::from_u128(nonce.0));
        let named: Params<'_> = &[&tenant, &key, &gate, &nonce, &request_id, &raw, &canonical];
        let life: Params<'_> =
            &[&hold, &promised, &skew, &tombstone, &route, path, &principal, &risk, &settle_time, &rule];
        let basis: Params<'_> = &[&attempt, &own_epoch, &own_attempt, &own_nonce, &over];
        let job: Params<'_> = &[&keep, &sealed, &request];
        let call = Call::writes(WHAT, &self.sql.accept);
        rows::claim_reply(WHAT, &self.on(Lane::Records, call, &[named, life, basis, job].concat()).await?)
    }

    async fn take(
        &self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        turns: Option<&Turns>,
    ) -> Result<Vec<Job>, StoreError> {
        const WHAT: &str = "taking jobs";
        let (taken, most) = (Uuid::from_u128(nonce.0), i64::try_from(most).unwrap_or(i64::MAX));
        let away = millis(away);
        let named: Params<'_> = &[&taken, &most, &away];
        let call = |sql| Call::writes(WHAT, sql);
        let found = match turns {
            None => self.on(Lane::Jobs, call(&self.sql.job_take), named).await?,
            Some(Turns { but_of, after }) => {
                let but_of: Vec<&str> = but_of.iter().map(Tenant::as_str).collect();
                // No tenant is empty, so all come after the empty one.
                let after = after.as_ref().map_or("", Tenant::as_str);
                let params = [named, &[&but_of, &after]].concat();
                self.on(Lane::Jobs, call(&self.sql.job_take_by_turns), &params).await?
            }
        };
        let unreadable = |why| errors::unreadable(WHAT, Effect::Writes, why);
        found.iter().map(|row| self.job_of(row, nonce)).collect::<Result<_, _>>().map_err(unreadable)
    }

    async fn finish(&self, taken: &Taken) -> Result<Written, StoreError> {
        self.end_job("finishing a job", &self.sql.job_finish, taken, &[]).await
    }

    async fn put_off(
        &self,
        taken: &Taken,
        after: Duration,
        counted: bool,
        trouble: &str,
    ) -> Result<Written, StoreError> {
        let back = i32::from(!counted);
        let params: Params<'_> = &[&millis(after), &back, &trouble];
        self.end_job("putting a job off", &self.sql.job_put_off, taken, params).await
    }

    async fn bury(&self, taken: &Taken, trouble: &str) -> Result<Written, StoreError> {
        self.end_job("burying a job", &self.sql.job_bury, taken, &[&trouble]).await
    }

    async fn erase(&self) -> Result<u64, StoreError> {
        let call = Call::writes("erasing requests", &self.sql.job_erase);
        Ok(self.on(Lane::Upkeep, call, &[]).await?.len() as u64)
    }

    async fn job(&self, id: &KeyId) -> Result<Option<JobRow>, StoreError> {
        let call = Call::reads("reading a job", &self.sql.job_one);
        let found = self.on(Lane::Records, call, &[&id.tenant().as_str(), &id.key().as_bytes()]).await?;
        found.first().map(job_row).transpose().map_err(|why| call.unreadable(why))
    }

    async fn jobs(&self, state: Option<JobState>, most: usize) -> Result<Vec<JobRow>, StoreError> {
        let state = state.map(|state| match state {
            JobState::Waiting => WAITING,
            JobState::Dead => DEAD,
        });
        let call = Call::reads("listing jobs", &self.sql.job_list);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.list(Lane::Admin, call, &[&state, &most], job_row).await
    }

    async fn load(&self) -> Result<JobLoad, StoreError> {
        let call = Call::reads("counting jobs", &self.sql.job_load);
        let found = self.on(Lane::Upkeep, call, &[]).await?;
        let read = || {
            let [row] = found.as_slice() else { return Err("rows") };
            let oldest = rows::millis(rows::get::<i64>(row, "oldest_ms")?.max(0))?;
            Ok(JobLoad { waiting: rows::count(row, "waiting")?, dead: rows::count(row, "dead")?, oldest })
        };
        read().map_err(|why| call.unreadable(why))
    }

    async fn revive(&self, id: &KeyId, act: &Act) -> Result<Acted, StoreError> {
        let call = Call::writes("reviving a job", &self.sql.job_revive);
        let (tenant, key) = (id.tenant().as_str(), id.key().as_bytes());
        if !self.on(Lane::Admin, call, &[&tenant, &key, &act.actor, &act.reason]).await?.is_empty() {
            return Ok(Acted::Done);
        }
        Ok(match self.job(id).await? {
            None => Acted::Absent,
            Some(JobRow { state: JobState::Waiting, .. }) => Acted::Waiting,
            Some(JobRow { state: JobState::Dead, .. }) => Acted::Erased,
        })
    }

    async fn discard(&self, id: &KeyId, act: &Act) -> Result<Acted, StoreError> {
        const WHAT: &str = "discarding a job";
        let (tenant, key) = (id.tenant().as_str(), id.key().as_bytes());
        let call = Call::writes(WHAT, &self.sql.job_discard);
        if !self.on(Lane::Admin, call, &[&tenant, &key, &act.actor, &act.reason]).await?.is_empty() {
            return Ok(Acted::Done);
        }
        let call = Call::reads(WHAT, &self.sql.job_held);
        let found = self.on(Lane::Admin, call, &[&tenant, &key]).await?;
        let unreadable = |why| call.unreadable(why);
        let [row] = found.as_slice() else { return Err(unreadable("rows")) };
        let flag = |name| rows::get::<bool>(row, name).map_err(unreadable);
        Ok(match (flag("there")?, flag("open")?) {
            (false, _) => Acted::Absent,
            (true, false) => Acted::GateMoved,
            (true, true) => Acted::Running,
        })
    }
}

impl PgStore {
    async fn end_job(
        &self,
        what: &'static str,
        sql: &str,
        taken: &Taken,
        rest: Params<'_>,
    ) -> Result<Written, StoreError> {
        let (tenant, key) = (taken.id.tenant().as_str(), taken.id.key().as_bytes());
        let nonce = Uuid::from_u128(taken.nonce.0);
        let named: Params<'_> = &[&tenant, &key, &nonce];
        let call = Call::writes(what, sql);
        self.write(Lane::Jobs, call, &[named, rest].concat()).await
    }

    fn job_of(&self, row: &tokio_postgres::Row, nonce: Nonce) -> Result<Job, rows::Unreadable> {
        let id = upkeep::key_id(row)?;
        let content = match (rows::get::<Option<&[u8]>>(row, "request")?, rows::get(row, "sealed")?) {
            (None, _) => Content::Erased,
            (Some(bytes), sealed) => self.content(&id, bytes, sealed),
        };
        Ok(Job {
            taken: Taken { id, nonce },
            request_id: RequestId(rows::get::<Uuid>(row, "request_id")?.as_u128()),
            runs: u32::try_from(rows::get::<i32>(row, "runs")?).map_err(|_| "runs")?,
            over: rows::get(row, "over")?,
            content,
        })
    }

    fn content(&self, id: &KeyId, bytes: &[u8], sealed: bool) -> Content {
        const NO_KEY: &str =
            "the request is sealed, and this gateway has no key ([accept] key): set it, then retry";
        const OTHER_KEY: &str =
            "the request was sealed with another key ([accept] key): restore that, then retry";
        let plain = match (sealed, &self.sealer) {
            (false, _) => Some(bytes.to_vec()),
            (true, None) => return Content::Unreadable(NO_KEY),
            (true, Some(sealer)) => sealer.open(id, bytes),
        };
        match plain.as_deref().map(sealing::decode) {
            None => Content::Unreadable(OTHER_KEY),
            Some(None) => Content::Unreadable("the stored request is damaged"),
            Some(Some(request)) => Content::Whole(Box::new(request)),
        }
    }
}

fn job_row(row: &tokio_postgres::Row) -> Result<JobRow, rows::Unreadable> {
    Ok(JobRow {
        id: upkeep::key_id(row)?,
        state: match rows::get::<i16>(row, "state")? {
            WAITING => JobState::Waiting,
            DEAD => JobState::Dead,
            _ => return Err("state"),
        },
        request_id: RequestId(rows::get::<Uuid>(row, "request_id")?.as_u128()),
        runs: u32::try_from(rows::get::<i32>(row, "runs")?).map_err(|_| "runs")?,
        accepted: Date(rows::get(row, "accepted_ms")?),
        next: Date(rows::get(row, "next_ms")?),
        forget: Date(rows::get(row, "forget_ms")?),
        kept: rows::get(row, "kept")?,
        sealed: rows::get(row, "sealed")?,
        trouble: rows::get::<Option<String>>(row, "trouble")?,
    })
}

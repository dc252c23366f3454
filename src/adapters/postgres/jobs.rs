//! The port `Jobs`: accepted requests, each stored with its record in one statement and taken by
//! one worker at a time.
//!
//! `sealing` has the bytes of a request. A request that cannot be read is passed on as unreadable,
//! never dropped. No statement is repeated.

use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::errors::{self, Called};
use super::params::{self, Params, millis, pair};
use super::run::Call;
use super::{Lane, PgStore, rows, sealing};
use crate::ports::jobs::{Act, Acted, Content, Job, JobLoad, JobRow, Jobs, StoredRequest, Taken, Turns};
use crate::ports::store::{ClaimAsk, ClaimReply, Written};
use crate::protocol::job::JobState;
use crate::protocol::key::{KeyId, Tenant};
use crate::protocol::record::{Nonce, RequestId};
use crate::protocol::time::Date;

/// Numbers of `state` in the table of jobs.
const WAITING: i16 = 1;
const DEAD: i16 = 2;

impl Jobs for PgStore {
    async fn accept(&self, ask: &ClaimAsk, request: &StoredRequest, keep: Duration) -> Called<ClaimReply> {
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
        let claim = params::claim(WHAT, ask)?;
        let job: Params<'_> = &[&millis(keep), &sealed, &request];
        let all = [params::borrowed(&claim).as_slice(), job].concat();
        let call = Call::writes(WHAT, &self.sql.accept);
        rows::claim_reply(WHAT, &self.on(Lane::Records, call, &all).await?)
    }

    async fn take(
        &self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        turns: Option<&Turns>,
    ) -> Called<Vec<Job>> {
        let (taken, most) = (Uuid::from_u128(nonce.0), i64::try_from(most).unwrap_or(i64::MAX));
        let away = millis(away);
        let named: Params<'_> = &[&taken, &most, &away];
        let call = |sql| Call::writes("taking jobs", sql);
        let read = |row: &Row| self.job_of(row, nonce);
        match turns {
            None => self.list(Lane::Jobs, call(&self.sql.job_take), named, read).await,
            Some(Turns { but_of, after }) => {
                let but_of: Vec<&str> = but_of.iter().map(Tenant::as_str).collect();
                // No tenant is empty, so all come after the empty one.
                let after = after.as_ref().map_or("", Tenant::as_str);
                let params = [named, &[&but_of, &after]].concat();
                self.list(Lane::Jobs, call(&self.sql.job_take_by_turns), &params, read).await
            }
        }
    }

    async fn finish(&self, taken: &Taken) -> Called<Written> {
        self.end_job(Call::writes("finishing a job", &self.sql.job_finish), taken, &[]).await
    }

    async fn put_off(&self, taken: &Taken, after: Duration, counted: bool, trouble: &str) -> Called<Written> {
        let back = i32::from(!counted);
        let params: Params<'_> = &[&millis(after), &back, &trouble];
        self.end_job(Call::writes("putting a job off", &self.sql.job_put_off), taken, params).await
    }

    async fn bury(&self, taken: &Taken, trouble: &str) -> Called<Written> {
        self.end_job(Call::writes("burying a job", &self.sql.job_bury), taken, &[&trouble]).await
    }

    async fn erase(&self) -> Called<u64> {
        self.number(Lane::Upkeep, Call::writes("erasing requests", &self.sql.job_erase), &[]).await
    }

    async fn job(&self, id: &KeyId) -> Called<Option<JobRow>> {
        let call = Call::reads("reading a job", &self.sql.job_one);
        let (tenant, key) = pair(id);
        Ok(self.list(Lane::Records, call, &[&tenant, &key], job_row).await?.pop())
    }

    async fn jobs(&self, state: Option<JobState>, most: usize) -> Called<Vec<JobRow>> {
        let state = state.map(|state| match state {
            JobState::Waiting => WAITING,
            JobState::Dead => DEAD,
        });
        let call = Call::reads("listing jobs", &self.sql.job_list);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.list(Lane::Admin, call, &[&state, &most], job_row).await
    }

    async fn load(&self) -> Called<JobLoad> {
        let call = Call::reads("counting jobs", &self.sql.job_load);
        self.read(Lane::Upkeep, call, &[], |found| {
            let [row] = found else { return Err("rows") };
            let oldest = rows::millis(rows::get::<i64>(row, "oldest_ms")?.max(0))?;
            Ok(JobLoad { waiting: rows::count(row, "waiting")?, dead: rows::count(row, "dead")?, oldest })
        })
        .await
    }

    async fn revive(&self, id: &KeyId, act: &Act) -> Called<Acted> {
        if self.act_on(id, Call::writes("reviving a job", &self.sql.job_revive), act).await? == Written::Done
        {
            return Ok(Acted::Done);
        }
        Ok(match self.job(id).await? {
            None => Acted::Absent,
            Some(JobRow { state: JobState::Waiting, .. }) => Acted::Waiting,
            Some(JobRow { state: JobState::Dead, .. }) => Acted::Erased,
        })
    }

    async fn discard(&self, id: &KeyId, act: &Act) -> Called<Acted> {
        const WHAT: &str = "discarding a job";
        if self.act_on(id, Call::writes(WHAT, &self.sql.job_discard), act).await? == Written::Done {
            return Ok(Acted::Done);
        }
        let (tenant, key) = pair(id);
        self.read(Lane::Admin, Call::reads(WHAT, &self.sql.job_held), &[&tenant, &key], |found| {
            let [row] = found else { return Err("rows") };
            Ok(match (rows::get(row, "there")?, rows::get(row, "open")?) {
                (false, true | false) => Acted::Absent,
                (true, false) => Acted::GateMoved,
                (true, true) => Acted::Running,
            })
        })
        .await
    }
}

impl PgStore {
    async fn end_job(&self, call: Call<'_>, taken: &Taken, rest: Params<'_>) -> Called<Written> {
        let ((tenant, key), nonce) = (pair(&taken.id), Uuid::from_u128(taken.nonce.0));
        let named: Params<'_> = &[&tenant, &key, &nonce];
        self.write(Lane::Jobs, call, &[named, rest].concat()).await
    }

    async fn act_on(&self, id: &KeyId, call: Call<'_>, by: &Act) -> Called<Written> {
        let (tenant, key) = pair(id);
        self.write(Lane::Admin, call, &[&tenant, &key, &by.actor, &by.reason]).await
    }

    fn job_of(&self, row: &Row, nonce: Nonce) -> Result<Job, rows::Unreadable> {
        let id = rows::key_id(row)?;
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

fn job_row(row: &Row) -> Result<JobRow, rows::Unreadable> {
    Ok(JobRow {
        id: rows::key_id(row)?,
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

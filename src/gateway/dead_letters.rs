//! Jobs for operators: their list, and acts on dead letters.
//!
//! [`super::jobs`] runs jobs that are brought back. Field names are a contract: add, never rename.
//! This file must not show a request, nor act without a reason.

use serde::Serialize;

use super::Gateway;
use crate::ports::jobs::{Act, Acted, JobRow};
use crate::ports::store::StoreError;
use crate::ports::{Jobs, KeyStore, Ports};
use crate::protocol::job::JobState;
use crate::protocol::key::KeyId;
use crate::protocol::record::State;
use crate::protocol::region::RegionName;

const MOST_LISTED: usize = 1_000;

/// A job.
#[derive(Clone, Debug, Serialize)]
pub struct JobStatus {
    /// The tenant.
    pub tenant: String,
    /// The key.
    pub key: String,
    /// The key's digest, as in the logs.
    pub digest: String,
    /// `waiting` or `dead`.
    pub state: &'static str,
    /// The request that was accepted.
    pub request_id: String,
    /// Number of its runs.
    pub runs: u32,
    /// Moment of its acceptance, milliseconds since 1970.
    pub accepted_ms: i64,
    /// Moment when it is due next, milliseconds since 1970.
    pub next_ms: i64,
    /// Moment when its request is erased, milliseconds since 1970.
    pub forget_ms: i64,
    /// True if its request is still stored.
    pub kept: bool,
    /// True if its request is sealed.
    pub sealed: bool,
    /// Trouble of its last run.
    pub trouble: Option<String>,
}

/// An operator's act on a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAct {
    /// A worker runs it again; its runs are counted anew.
    Retry,
    /// The job goes, and its request with it; waiting jobs, too.
    Drop,
}

impl<P: Ports> Gateway<P> {
    /// The region that this gateway serves in.
    pub fn region(&self) -> &RegionName {
        &self.settings.me
    }

    /// Jobs of this region, oldest first.
    pub async fn jobs(&self, state: Option<JobState>) -> Result<Vec<JobStatus>, StoreError> {
        Ok(self.ports.store().jobs(state, MOST_LISTED).await?.into_iter().map(job_status).collect())
    }

    /// Expected result of [`Gateway::act_on_job`], by the job and its key's record as they are now.
    /// Changes nothing. Only the statement that drops a waiting job knows if a worker holds it.
    /// Then [`Acted::Running`] may come in place of [`Acted::Done`].
    pub async fn rehearse_on_job(&self, id: &KeyId, what: JobAct) -> Result<Acted, StoreError> {
        let store = self.ports.store();
        let Some(job) = store.job(id).await? else { return Ok(Acted::Absent) };
        match (what, job.state) {
            (JobAct::Retry, JobState::Waiting) => Ok(Acted::Waiting),
            (JobAct::Retry, JobState::Dead) if job.kept => Ok(Acted::Done),
            (JobAct::Retry, JobState::Dead) => Ok(Acted::Erased),
            (JobAct::Drop, JobState::Waiting | JobState::Dead) => {
                let rows = store.look_up(std::slice::from_ref(id)).await?;
                let mut own = rows.into_iter().flatten().filter(|row| row.origin == self.origin);
                let runs = own.any(|row| match row.state {
                    State::Claimed { left, .. } => !left.is_zero(),
                    State::InDoubt { .. } | State::Released | State::Settled { .. } | State::Tombstone => {
                        false
                    }
                });
                Ok(if runs { Acted::Running } else { Acted::Done })
            }
        }
    }

    /// Performs the act, and journals it.
    pub async fn act_on_job(&self, id: &KeyId, what: JobAct, act: &Act) -> Result<Acted, StoreError> {
        let store = self.ports.store();
        let acted = match what {
            JobAct::Retry => store.revive(id, act).await?,
            JobAct::Drop => store.discard(id, act).await?,
        };
        if acted == Acted::Done {
            tracing::info!(tenant = %id.tenant(), key = %id.digest(), actor = act.actor, ?what, "an operator acted on a job");
            self.jobs.due();
        }
        Ok(acted)
    }
}

fn job_status(row: JobRow) -> JobStatus {
    JobStatus {
        tenant: row.id.tenant().to_string(),
        key: row.id.key().as_str().to_owned(),
        digest: row.id.digest().to_string(),
        state: match row.state {
            JobState::Waiting => "waiting",
            JobState::Dead => "dead",
        },
        request_id: row.request_id.to_string(),
        runs: row.runs,
        accepted_ms: row.accepted.as_millis(),
        next_ms: row.next.as_millis(),
        forget_ms: row.forget.as_millis(),
        kept: row.kept,
        sealed: row.sealed,
        trouble: row.trouble,
    }
}

//! What operators see of jobs, and may do about dead letters.
//!
//! Neighbours: `server::admin` serves it as JSON, `cli::jobs` prints it; [`super::jobs`] runs what is brought back. Field names are a
//! contract: add, never rename. It must not show a request, nor act without a reason.

use serde::Serialize;

use super::Gateway;
use crate::ports::jobs::{Act, Acted, JobRow};
use crate::ports::store::StoreError;
use crate::ports::{Jobs, KeyStore, Ports};
use crate::protocol::job::JobState;
use crate::protocol::key::KeyId;
use crate::protocol::record::State;
use crate::protocol::region::RegionName;

/// The most jobs that are listed at once.
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
    /// waiting or dead.
    pub state: &'static str,
    /// The request that was accepted.
    pub request_id: String,
    /// How often it was run.
    pub runs: u32,
    /// When it was accepted, milliseconds since 1970.
    pub accepted_ms: i64,
    /// When it is due next, milliseconds since 1970.
    pub next_ms: i64,
    /// When its request is erased, milliseconds since 1970.
    pub forget_ms: i64,
    /// Whether its request is stored still.
    pub kept: bool,
    /// Whether its request is sealed.
    pub sealed: bool,
    /// What its last run came to.
    pub trouble: Option<String>,
}

/// What an operator does with a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterAct {
    /// A worker runs it again, its runs counted anew.
    Retry,
    /// The job goes, and its request with it; waiting ones too.
    Drop,
}

impl<P: Ports> Gateway<P> {
    /// The region it serves in.
    pub fn region(&self) -> &RegionName {
        &self.settings.me
    }

    /// Jobs of this region, oldest first.
    pub async fn jobs(&self, state: Option<JobState>) -> Result<Vec<JobStatus>, StoreError> {
        Ok(self.ports.store().jobs(state, MOST_LISTED).await?.into_iter().map(job_status).collect())
    }

    /// What [`Gateway::act_on_job`] would come to, by the job and its key's record as they are now. Changes nothing. Whether a worker holds a
    /// waiting job is known to the statement that drops it only: then [`Acted::Running`] may come in place of [`Acted::Done`].
    pub async fn rehearse_on_job(&self, id: &KeyId, what: LetterAct) -> Result<Acted, StoreError> {
        let store = self.ports.store();
        let Some(job) = store.job(id).await? else { return Ok(Acted::Absent) };
        match (what, job.state) {
            (LetterAct::Retry, JobState::Waiting) => Ok(Acted::Waiting),
            (LetterAct::Retry, JobState::Dead) if job.kept => Ok(Acted::Done),
            (LetterAct::Retry, JobState::Dead) => Ok(Acted::Erased),
            (LetterAct::Drop, JobState::Waiting | JobState::Dead) => {
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

    /// Does it, and journals it.
    pub async fn act_on_job(&self, id: &KeyId, what: LetterAct, act: &Act) -> Result<Acted, StoreError> {
        let store = self.ports.store();
        let acted = match what {
            LetterAct::Retry => store.revive(id, act).await?,
            LetterAct::Drop => store.discard(id, act).await?,
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

//! Jobs for operators: the lists of a region and of all regions, and acts on dead letters.
//!
//! [`crate::gateway::upkeep::jobs`] runs jobs that are brought back. Field names are a contract:
//! add, never rename. A request is never shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::everywhere::Answers;
use crate::gateway::instance::Gateway;
use crate::ports::jobs::{Act, Acted, JobRow};
use crate::ports::peers::Question;
use crate::ports::store::StoreError;
use crate::ports::{Jobs, KeyStore, Ports};
use crate::protocol::job::JobState;
use crate::protocol::key::KeyId;
use crate::protocol::record::State;
use crate::protocol::region::RegionName;

const MOST_LISTED: usize = 1_000;

/// The jobs of one region, or of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobsPage {
    /// The region that was asked.
    pub region: String,
    /// The jobs, oldest first. Of each region 1,000 at most.
    pub jobs: Vec<JobStatus>,
    /// Regions whose jobs are not among them, with the reason; of a list of all regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<BTreeMap<String, String>>,
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobStatus {
    /// The region that accepted the request, and runs it.
    pub region: String,
    /// The tenant.
    pub tenant: String,
    /// The key.
    pub key: String,
    /// The key's digest, as in the logs.
    pub digest: String,
    /// `waiting` or `dead`.
    pub state: String,
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
    pub async fn jobs(&self, state: Option<JobState>) -> Result<JobsPage, StoreError> {
        let rows = self.store().jobs(state, MOST_LISTED).await?;
        let jobs = rows.into_iter().map(|row| job_status(&self.settings.me, row)).collect();
        Ok(JobsPage { region: self.settings.me.to_string(), jobs, silent: None })
    }

    /// Jobs of all regions, oldest first. An error: no region answered, nor the own store.
    pub async fn all_jobs(self: &Arc<Self>, state: Option<JobState>) -> Result<JobsPage, StoreError> {
        let Answers { given, silent } = self.ask_all(&Question::Jobs { state }, self.jobs(state)).await?;
        let region = self.settings.me.to_string();
        let mut jobs: Vec<JobStatus> = Vec::new();
        for (name, page) in given {
            // A region speaks of its own jobs only.
            jobs.extend(page.jobs.into_iter().map(|job| JobStatus { region: name.to_string(), ..job }));
        }
        jobs.sort_by_key(|job| (job.accepted_ms, job.region != region));
        Ok(JobsPage { region, jobs, silent: Some(silent) })
    }

    /// Expected result of [`Gateway::act_on_job`], by what is stored now. Only the statement that
    /// drops a waiting job knows if a worker holds it: then it may be [`Acted::Running`].
    pub async fn rehearse_on_job(&self, id: &KeyId, what: JobAct) -> Result<Acted, StoreError> {
        let store = self.store();
        let Some(job) = store.job(id).await? else { return Ok(Acted::Absent) };
        match (what, job.state) {
            (JobAct::Retry, JobState::Waiting) => Ok(Acted::Waiting),
            (JobAct::Retry, JobState::Dead) if job.kept => Ok(Acted::Done),
            (JobAct::Retry, JobState::Dead) => Ok(Acted::Erased),
            (JobAct::Drop, JobState::Waiting | JobState::Dead) => {
                let rows = store.look_up(std::slice::from_ref(id)).await?;
                let mut own = rows.into_iter().flatten().filter(|row| row.origin == self.origin);
                let runs = own.any(|row| matches!(row.state, State::Claimed { left, .. } if !left.is_zero()));
                Ok(if runs { Acted::Running } else { Acted::Done })
            }
        }
    }

    /// Performs the act, and journals it.
    pub async fn act_on_job(&self, id: &KeyId, what: JobAct, act: &Act) -> Result<Acted, StoreError> {
        let store = self.store();
        let acted = match what {
            JobAct::Retry => store.revive(id, act).await?,
            JobAct::Drop => store.discard(id, act).await?,
        };
        if acted == Acted::Done {
            tracing::info!(tenant = %id.tenant(), key = %id.digest(), actor = act.actor, ?what, "an operator acted on a job");
            self.authority.wakes.jobs.notify_one();
        }
        Ok(acted)
    }
}

fn job_status(region: &RegionName, row: JobRow) -> JobStatus {
    JobStatus {
        region: region.to_string(),
        tenant: row.id.tenant().to_string(),
        key: row.id.key().as_str().to_owned(),
        digest: row.id.digest().to_string(),
        state: if row.state == JobState::Dead { "dead" } else { "waiting" }.to_owned(),
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

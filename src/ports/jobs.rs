//! The region's stored requests: accepted ones that wait to be run, and dead letters ([`Jobs`]).
//!
//! One statement writes a key, its request and its job, so an implementer of [`super::KeyStore`]
//! implements this port too. A request may be sealed at rest: that is the store's business.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use super::store::{Call, ClaimAsk, ClaimReply, Written};
use onceway_protocol::job::JobState;
use onceway_protocol::key::{KeyId, Tenant};
use onceway_protocol::record::{Nonce, RequestId};
use onceway_protocol::time::Date;

/// A request as it is run, and stored until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRequest {
    /// The client's method.
    pub method: Method,
    /// The client's path and query.
    pub target: Uri,
    /// The client's headers, as far as they may be stored.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// The content of a stored request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The request.
    Whole(Box<StoredRequest>),
    /// The request cannot be read; the reason, in our own words.
    Unreadable(&'static str),
    /// The request was erased: its retention is over.
    Erased,
}

/// A job in the hands of one worker: writes under an older nonce are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The key.
    pub id: KeyId,
    /// The nonce of this taking alone.
    pub nonce: Nonce,
}

/// A job to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The worker's hold on it.
    pub taken: Taken,
    /// The request that was accepted.
    pub request_id: RequestId,
    /// Number of its runs, this one included.
    pub runs: u32,
    /// True if the retention of its request is over, by the date that the taker believes.
    pub over: bool,
    /// The request.
    pub content: Content,
}

/// A job as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The key.
    pub id: KeyId,
    /// Its state.
    pub state: JobState,
    /// The request that was accepted.
    pub request_id: RequestId,
    /// Number of its runs.
    pub runs: u32,
    /// The time of its acceptance, by the database's clock.
    pub accepted: Date,
    /// The time at which it is due next.
    pub next: Date,
    /// The time at which its request is erased.
    pub forget: Date,
    /// True if its request still exists.
    pub kept: bool,
    /// True if its request is sealed at rest.
    pub sealed: bool,
    /// The result of its last run, in one line without key or body.
    pub trouble: Option<String>,
}

/// An operator's act, as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The operator.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
}

/// The result of an operator's act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acted {
    /// Done, and journalled.
    Done,
    /// No such job exists.
    Absent,
    /// The job is no dead letter: a worker runs it when it is due.
    Waiting,
    /// The job's request was erased, so it can never run again.
    Erased,
    /// A worker has the job, or an attempt of it may be running.
    Running,
    /// The approved boot is not the running one.
    GateMoved,
}

/// A choice of jobs by turns: the longest due job of each tenant, in the order of tenants' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Tenants that are left out.
    pub but_of: Vec<Tenant>,
    /// The tenant behind which the turn begins.
    pub after: Option<Tenant>,
}

/// All jobs of a region in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobLoad {
    /// Jobs that wait for a worker or are with one.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
    /// The time since the oldest waiting one was accepted.
    pub oldest: Duration,
}

/// The stored requests of this region. All methods bound their own time and never resend.
pub trait Jobs: Send + Sync + 'static {
    /// Accepts a request: writes the key's record, released and marked as accepted, and its job,
    /// due at once. Like a claim it compares the gate, finds the rows that stop it, and finds
    /// itself when repeated with the same nonce. On a known basis the own row must be released. The
    /// token is that of the attempts so far, 0 if none. The stored request is erased after `keep`.
    fn accept(&self, ask: &ClaimAsk, request: &StoredRequest, keep: Duration) -> impl Call<ClaimReply>;

    /// Takes up to `most` due jobs, oldest due first; or by turns. Each counts one run more and is
    /// not due again for `away`, so a worker that dies gives it back. Two takers never get one job.
    fn take(&self, nonce: Nonce, most: usize, away: Duration, turns: Option<&Turns>) -> impl Call<Vec<Job>>;

    /// Ends a job that is done: it goes, and its request with it.
    fn finish(&self, taken: &Taken) -> impl Call<Written>;

    /// Makes the job due again after this span, and at the latest when the retention of its request
    /// ends. A run that did not count is taken back.
    fn put_off(&self, taken: &Taken, after: Duration, counted: bool, trouble: &str) -> impl Call<Written>;

    /// Makes the job a dead letter.
    fn bury(&self, taken: &Taken, trouble: &str) -> impl Call<Written>;

    /// Erases the requests of dead letters whose retention is over. Returns their number.
    fn erase(&self) -> impl Call<u64>;

    /// The job of a key.
    fn job(&self, id: &KeyId) -> impl Call<Option<JobRow>>;

    /// Up to `most` jobs, oldest first; of one state, or all.
    fn jobs(&self, state: Option<JobState>, most: usize) -> impl Call<Vec<JobRow>>;

    /// All jobs in numbers.
    fn load(&self) -> impl Call<JobLoad>;

    /// Gives a dead letter back to the workers, due at once, its runs counted anew.
    fn revive(&self, id: &KeyId, act: &Act) -> impl Call<Acted>;

    /// Removes a job and its request, unless a worker has it. The record is free again if nothing
    /// happened; one in doubt stays so. A worker that was given up cannot claim a free record.
    fn discard(&self, id: &KeyId, act: &Act) -> impl Call<Acted>;
}

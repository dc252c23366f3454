//! The region's stored requests: accepted ones that wait to be run, and dead ones that wait for an operator ([`Jobs`]).
//!
//! Neighbours: `gateway::accept` and `gateway::jobs` call it, `adapters::postgres` and the simulation implement it beside [`super::KeyStore`],
//! because a key, its request and its job are written by one statement. A request may be sealed at rest: that is the store's
//! business. It must not decide what a run came to, nor how often one is made.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use super::store::{ClaimAsk, ClaimReply, StoreError, Written};
use crate::protocol::forget::MayForget;
use crate::protocol::job::JobState;
use crate::protocol::key::{KeyId, Tenant};
use crate::protocol::record::{Nonce, RequestId};
use crate::protocol::time::Date;

/// A request as it is stored until it was run.
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

/// What became of a stored request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Here it is.
    Whole(Box<StoredRequest>),
    /// It cannot be read; why, in our own words.
    Unreadable(&'static str),
    /// It was erased: its retention is over.
    Erased,
}

/// A job in the hands of one worker: writes under an older nonce are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The key.
    pub id: KeyId,
    /// Tells this taking from every other.
    pub nonce: Nonce,
}

/// A job to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Who has it.
    pub taken: Taken,
    /// The request that was accepted.
    pub request_id: RequestId,
    /// How often it was run, this time included.
    pub runs: u32,
    /// The retention of its request is over, by the date that the taker believes.
    pub over: bool,
    /// The request.
    pub content: Content,
}

/// A job as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The key.
    pub id: KeyId,
    /// Whether a worker runs it.
    pub state: JobState,
    /// The request that was accepted.
    pub request_id: RequestId,
    /// How often it was run.
    pub runs: u32,
    /// When it was accepted, by the database's clock.
    pub accepted: Date,
    /// When it is due next.
    pub next: Date,
    /// When its request is erased.
    pub forget: Date,
    /// Whether its request is there still.
    pub kept: bool,
    /// Whether its request is sealed at rest.
    pub sealed: bool,
    /// What its last run came to, in one line without key or body.
    pub trouble: Option<String>,
}

/// An operator's act, as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// What came of an operator's act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acted {
    /// Done, and journalled.
    Done,
    /// There is no such job.
    Absent,
    /// It is no dead letter: a worker runs it when it is due.
    Waiting,
    /// Its request was erased, so it can never run again.
    Erased,
    /// A worker has it, or an attempt of it may be running.
    Running,
    /// The approved boot is not the running one.
    GateMoved,
}

/// Whose jobs are taken, if not those that are due longest: one of each tenant in the order of their names, the one that is due longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Of these none.
    pub but_of: Vec<Tenant>,
    /// Only of those behind this one.
    pub after: Option<Tenant>,
}

/// All jobs of a region in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobLoad {
    /// Jobs that wait for a worker or are with one.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long ago the oldest waiting one was accepted.
    pub oldest: Duration,
}

/// The stored requests of this region. All methods bound their own time and never resend behind the caller's back.
pub trait Jobs: Send + Sync + 'static {
    /// Accepts a request: in one statement the key's record, released and marked as accepted, and its job, due at once. Like a claim it
    /// compares the gate, finds what stands in the way, and finds itself when repeated with the same nonce. On a known basis
    /// the own row must be released. No attempt number is used up: the token is that of the attempts so far, 0 of none.
    /// The stored request is erased after `keep`.
    fn accept(
        &self,
        ask: &ClaimAsk,
        request: &StoredRequest,
        keep: Duration,
    ) -> impl Future<Output = Result<ClaimReply, StoreError>> + Send;

    /// Takes up to `most` due jobs, oldest due first; or by turns. Each counts one run more and is
    /// not due again for `away`, so a worker that dies gives it back by itself. Two takers never
    /// get one job. No retention counts as over that may not be forgotten, whatever the database's
    /// clock says.
    fn take(
        &self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        may: Option<MayForget>,
        turns: Option<&Turns>,
    ) -> impl Future<Output = Result<Vec<Job>, StoreError>> + Send;

    /// The job is done: it goes, and its request with it.
    fn finish(&self, taken: &Taken) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// The job is due again after this span, and at the latest when the retention of its request ends; a run that did not count is
    /// taken back.
    fn put_off(
        &self,
        taken: &Taken,
        after: Duration,
        counted: bool,
        trouble: &str,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// The job is a dead letter from now on.
    fn bury(&self, taken: &Taken, trouble: &str) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Erases the requests of dead letters whose retention is over by the database's clock and may
    /// be forgotten; how many.
    fn erase(&self, may: MayForget) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// The job of a key.
    fn job(&self, id: &KeyId) -> impl Future<Output = Result<Option<JobRow>, StoreError>> + Send;

    /// Up to `most` jobs, oldest first; of one state, or all.
    fn jobs(
        &self,
        state: Option<JobState>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<JobRow>, StoreError>> + Send;

    /// All jobs in numbers.
    fn load(&self) -> impl Future<Output = Result<JobLoad, StoreError>> + Send;

    /// Gives a dead letter back to the workers, due at once, its runs counted anew.
    fn revive(&self, id: &KeyId, act: &Act) -> impl Future<Output = Result<Acted, StoreError>> + Send;

    /// Removes a job and its request, unless a worker has it. The record is free again if nothing happened; one in doubt stays so. A
    /// worker that was given up cannot claim what is free.
    fn discard(&self, id: &KeyId, act: &Act) -> impl Future<Output = Result<Acted, StoreError>> + Send;
}

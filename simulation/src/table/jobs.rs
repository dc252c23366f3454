//! The table of jobs: accepted requests and dead letters, in one transaction with their records.
//!
//! Jobs are never shipped.

use std::collections::BTreeSet;
use std::time::Duration;

use onceway::ports::jobs::{Act, Acted, Content, Job, JobLoad, JobRow, StoredRequest, Taken, Turns};
use onceway::ports::store::{ClaimAsk, ClaimReply, Written};
use onceway::protocol::job::JobState;
use onceway::protocol::key::{KeyId, Tenant};
use onceway::protocol::record::{Basis, Nonce, State};
use onceway::protocol::time::Date;

use super::parts::Kept;
use super::stored::span;
use super::{Table, micros};

impl Table {
    /// An acceptance: the nonce first, then the gate and the rows in the way, then record and job.
    pub(crate) fn accept(&mut self, ask: &ClaimAsk, request: &StoredRequest, keep: Duration) -> ClaimReply {
        let now = self.now();
        let own = self.own(&ask.id);
        if let Some(own) = own.filter(|own| own.row.nonce == ask.nonce) {
            return own.won();
        }
        if matches!(ask.basis, Basis::Absent) && !self.all(&ask.id).is_empty() {
            return ClaimReply::Found(self.read(&ask.id));
        }
        if !self.is_open() || ask.gate != self.version {
            return ClaimReply::GateMoved;
        }
        let is_free = own.is_none_or(|own| matches!(own.row.state, State::Released));
        let Some((over, attempt)) = self.yielded(ask, own, now).filter(|_| is_free) else {
            return ClaimReply::Found(self.read(&ask.id));
        };
        let row = self.row(ask, State::Released, over, attempt, true);
        let won = row.won();
        self.write(&ask.id, row);
        let job = Kept {
            state: JobState::Waiting,
            request_id: ask.request_id,
            runs: 0,
            nonce: None,
            next: now,
            accepted: self.clock.micros(),
            forget: self.start().saturating_add(micros(keep)),
            request: Some(request.clone()),
            trouble: None,
        };
        self.jobs.insert(ask.id.clone(), job);
        won
    }

    pub(crate) fn take(
        &mut self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        turns: Option<&Turns>,
    ) -> Vec<Job> {
        let (now, start) = (self.now(), self.start());
        let due = self.jobs.iter().filter(|(_, job)| job.state == JobState::Waiting && job.next <= now);
        let mut due: Vec<(i64, KeyId)> = due.map(|(id, job)| (job.next, id.clone())).collect();
        due.sort();
        if let Some(Turns { but_of, after }) = turns {
            let mut had: BTreeSet<Tenant> = but_of.iter().cloned().collect();
            due.retain(|(_, id)| Some(id.tenant()) > after.as_ref() && had.insert(id.tenant().clone()));
            due.sort_by(|(_, one), (_, other)| one.tenant().cmp(other.tenant()));
        }
        due.truncate(most);
        let mut taken = Vec::new();
        for (_, id) in due {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            job.runs += 1;
            job.nonce = Some(nonce);
            job.next = start.saturating_add(micros(away));
            taken.push(Job {
                taken: Taken { id, nonce },
                request_id: job.request_id,
                runs: job.runs,
                over: job.forget <= now,
                content: job.request.clone().map_or(Content::Erased, |whole| Content::Whole(Box::new(whole))),
            });
        }
        taken
    }

    pub(crate) fn finish(&mut self, taken: &Taken) -> Written {
        if self.held(taken).is_none() {
            return Written::Lost;
        }
        self.jobs.remove(&taken.id);
        Written::Done
    }

    pub(crate) fn put_off(
        &mut self,
        taken: &Taken,
        after: Duration,
        counted: bool,
        trouble: &str,
    ) -> Written {
        let (now, start) = (self.now(), self.start());
        let Some(job) = self.held(taken) else { return Written::Lost };
        let next = start.saturating_add(micros(after));
        job.next = if job.forget > now { next.min(job.forget) } else { next };
        job.runs -= u32::from(!counted);
        job.trouble = Some(trouble.to_owned());
        job.nonce = None;
        Written::Done
    }

    pub(crate) fn bury(&mut self, taken: &Taken, trouble: &str) -> Written {
        let Some(job) = self.held(taken) else { return Written::Lost };
        job.state = JobState::Dead;
        job.trouble = Some(trouble.to_owned());
        job.nonce = None;
        Written::Done
    }

    pub(crate) fn erase(&mut self) -> u64 {
        let now = self.now();
        let over =
            |job: &&mut Kept| job.state == JobState::Dead && job.forget <= now && job.request.is_some();
        let mut erased = 0;
        for job in self.jobs.values_mut().filter(over) {
            job.request = None;
            erased += 1;
        }
        erased
    }

    pub(crate) fn job(&self, id: &KeyId) -> Option<JobRow> {
        self.jobs.get(id).map(|job| job.shown(id, self.now(), self.clock.micros()))
    }

    pub(crate) fn jobs(&self, state: Option<JobState>, most: usize) -> Vec<JobRow> {
        let wanted = self.jobs.iter().filter(|(_, job)| state.is_none_or(|state| job.state == state));
        let mut rows: Vec<(i64, JobRow)> =
            wanted.map(|(id, job)| (job.accepted, job.shown(id, self.now(), self.clock.micros()))).collect();
        rows.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.id.cmp(&other.id)));
        rows.into_iter().map(|(_, row)| row).take(most).collect()
    }

    pub(crate) fn load(&self) -> JobLoad {
        let now = self.clock.micros();
        let waiting = || self.jobs.values().filter(|job| job.state == JobState::Waiting);
        let oldest = waiting().map(|job| job.accepted).min().map_or(0, |at| now.saturating_sub(at));
        JobLoad {
            waiting: waiting().count() as u64,
            dead: (self.jobs.len() - waiting().count()) as u64,
            oldest: span(oldest),
        }
    }

    pub(crate) fn revive(&mut self, id: &KeyId, _act: &Act) -> Acted {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(id) else { return Acted::Absent };
        if job.state == JobState::Waiting {
            return Acted::Waiting;
        }
        if job.request.is_none() {
            return Acted::Erased;
        }
        job.state = JobState::Waiting;
        job.runs = 0;
        job.next = now;
        job.trouble = None;
        Acted::Done
    }

    pub(crate) fn discard(&mut self, id: &KeyId, _act: &Act) -> Acted {
        let now = self.now();
        let Some(job) = self.jobs.get(id) else { return Acted::Absent };
        let with_worker = job.state == JobState::Waiting && job.nonce.is_some() && job.next > now;
        if !self.is_open() {
            return Acted::GateMoved;
        }
        if with_worker {
            return Acted::Running;
        }
        if let Some(mut own) = self.own(id).cloned() {
            if own.is_claimed() && !own.left(now).is_zero() {
                return Acted::Running;
            }
            own.row.accepted = false;
            if matches!(own.row.state, State::Released) {
                // No claim drew this nonce: a worker that read the row before cannot claim on it.
                own.row.nonce = Nonce(!own.row.nonce.0);
            }
            self.write(id, own);
        }
        self.jobs.remove(id);
        Acted::Done
    }

    fn held(&mut self, taken: &Taken) -> Option<&mut Kept> {
        let job = self.jobs.get_mut(&taken.id)?;
        (job.state == JobState::Waiting && job.nonce == Some(taken.nonce)).then_some(job)
    }
}

impl Kept {
    fn shown(&self, id: &KeyId, now: i64, wall: i64) -> JobRow {
        let date = |micros: i64| Date(micros.div_euclid(1_000));
        let then = |at: i64| date(wall.saturating_add(at.saturating_sub(now)));
        JobRow {
            id: id.clone(),
            state: self.state,
            request_id: self.request_id,
            runs: self.runs,
            accepted: date(self.accepted),
            next: then(self.next),
            forget: then(self.forget),
            kept: self.request.is_some(),
            sealed: false,
            trouble: self.trouble.clone(),
        }
    }
}

//! One keyed request on its way through a gateway in shadow mode, and its verdict.
//!
//! Its body and its answer may end in either order. This file must not refuse, delay or change a
//! request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, Method, Uri};

use super::counts::{Shadow, Verdict};
use super::memory::{Asked, Met};
use super::tee::Copied;
use crate::gateway::limits::quota::Charged;
use crate::gateway::policy::route::{Binding, Policy};
use crate::gateway::request::admit::take_fingerprint;
use crate::gateway::request::problems::Kind;
use crate::gateway::telemetry::metrics;
use crate::protocol::digest::Digest32;
use crate::protocol::key::KeyId;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::Recovery;
use crate::protocol::time::Moment;

/// One keyed request on its way: its body and its answer may end in either order.
pub struct Trial {
    pub shadow: Arc<Shadow>,
    /// Charges to its tenant's quotas.
    pub charged: Charged,
    pub route: Arc<str>,
    pub policy: Arc<Policy>,
    pub id: KeyId,
    pub principal: Option<Digest32>,
    pub key: Digest32,
    pub stage: Mutex<Stage>,
}

#[derive(Default)]
pub struct Stage {
    met: Option<Met>,
    answer: Option<((Outcome, Option<u16>), Moment)>,
}

impl Trial {
    /// Takes in the end of the body, whole or not.
    pub fn came(&self, copied: Copied, asks: (&Method, &Uri, &HeaderMap), now: Moment) {
        let body = match copied {
            Copied::Whole(body) => body,
            Copied::Over => {
                return self.judge(Verdict::refused(Kind::BodyTooLarge));
            }
            Copied::Broken => return self.judge(Verdict::Unjudged),
        };
        let (method, target, headers) = asks;
        let bound_to = match self.policy.bind {
            Binding::Principal => self.principal,
            Binding::Tenant => None,
        };
        let fingerprint = match take_fingerprint(&self.policy, method, target, headers, &body) {
            Ok(fingerprint) => fingerprint,
            Err(problem) => return self.judge(Verdict::refused(problem.kind)),
        };
        let asked = Asked { fingerprint, principal: self.principal, bound_to };
        let reruns = matches!(self.policy.recovery, Recovery::Rerun { .. });
        let met = self.shadow.lock().memory.meet(self.key, asked, now, self.policy.retention, reruns);
        match met {
            Met::Nothing(_) => self.judge(Verdict::Run),
            // Judged when the run that it waits for ends.
            Met::Running(_) => {}
            Met::Settled(_) => self.judge(Verdict::Replayed),
            Met::InDoubt => self.judge(Verdict::InDoubt),
            Met::Other => self.judge(Verdict::refused(Kind::KeyReused)),
            Met::Expired => self.judge(Verdict::refused(Kind::KeyExpired)),
        }
        let answer = {
            let mut stage = self.stage();
            stage.met = Some(met);
            stage.answer
        };
        if let Some((answer, at)) = answer {
            self.end(met, answer, at);
        }
    }

    /// Takes in the head of the answer, or that none will come.
    pub fn answered(&self, answer: (Outcome, Option<u16>), now: Moment) {
        let met = {
            let mut stage = self.stage();
            stage.answer = Some((answer, now));
            stage.met
        };
        if let Some(met) = met {
            self.end(met, answer, now);
        }
    }

    fn end(&self, met: Met, answer: (Outcome, Option<u16>), now: Moment) {
        let ended = self.shadow.lock().memory.end(self.key, met, answer, now, self.policy.wait);
        for given in ended.waited {
            self.judge(Verdict::after_waiting(given));
        }
        if ended.diverged {
            self.shadow.lock().routes.entry(self.route.clone()).or_default().diverged += 1;
            metrics::shadow_diverged(&self.route);
            tracing::info!(route = %self.route, tenant = %self.id.tenant(), key = %self.id.digest(), status = answer.1, "shadow mode: a copy of a request got another final status");
        }
    }

    fn judge(&self, verdict: Verdict) {
        let retry = matches!(verdict, Verdict::Replayed | Verdict::InDoubt | Verdict::Refused("in-progress"));
        self.charged.give_back(self.id.tenant(), retry);
        self.shadow.judge(&self.route, Some(&self.id), verdict);
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Trial {
    /// A client that hung up took the answer along. The result of its run is not known, nor the
    /// replies of the copies that waited for it.
    fn drop(&mut self) {
        let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Some(met), None) = (stage.met, stage.answer) {
            let waited = self.shadow.lock().memory.forget(self.key, met);
            for _ in 0..waited {
                self.judge(Verdict::Unjudged);
            }
        }
    }
}

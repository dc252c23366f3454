//! A keyed request, whole: admitted here, forwarded by a peer, or taken from a job. All flows carry
//! it on, unchanged.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::gateway::limits::concurrency::Place;
use crate::gateway::limits::quota::Charged;
use crate::gateway::policy::route::{Binding, Policy};
use crate::gateway::telemetry::times::{RouteTimes, Waited};
use crate::ports::Clock;
use crate::ports::jobs::StoredRequest;
use crate::ports::peers::Forward;
use crate::protocol::digest::Digest32;
use crate::protocol::escrow::Meanings;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyId;
use crate::protocol::record::RequestId;
use crate::protocol::time::Moment;

/// The party that waits for the result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Client,
    /// A client that gets the address of the later answer.
    Later {
        preferred: bool,
    },
    Worker,
}

#[derive(Clone)]
pub struct Ask {
    pub id: KeyId,
    /// The principal that asks; always present if the route binds its keys to the principal.
    pub principal: Option<Digest32>,
    /// The key header as the client wrote it.
    pub echo: HeaderValue,
    pub route: Arc<str>,
    pub policy: Arc<Policy>,
    /// The meanings of the routes that it was matched with.
    pub meanings: Arc<Meanings>,
    pub request: StoredRequest,
    pub fingerprint: Fingerprint,
    pub request_id: RequestId,
    pub arrived: Moment,
    /// Time that the asking party will wait for the answer.
    pub deadline: Duration,
    pub by: By,
    /// Charges to its tenant's quotas here: at the gateway that the client asked.
    pub charged: Charged,
    /// The series of its route, if its client came to this gateway.
    pub times: Option<Arc<RouteTimes>>,
    /// Time that it waited for others.
    pub waited: Waited,
    /// Its place among the requests at once, kept as long as this value; a job has none.
    pub _place: Option<Place>,
}

impl Ask {
    /// The principal that a claim binds the key to. A job's key stays bound as its client was told.
    pub fn bound_to(&self) -> Option<Digest32> {
        match (self.by, self.policy.bind) {
            (By::Worker, _) | (By::Client | By::Later { .. }, Binding::Principal) => self.principal,
            (By::Client | By::Later { .. }, Binding::Tenant) => None,
        }
    }

    /// The same request for another region, from one that goes by this epoch.
    pub fn forward(&self, epoch: u64) -> Forward {
        let StoredRequest { method, target, headers, body } = self.request.clone();
        Forward {
            id: self.id.clone(),
            principal: self.principal,
            method,
            target,
            headers,
            body,
            request_id: self.request_id,
            epoch,
            deadline: self.deadline,
        }
    }

    /// Waits for others on behalf of this request: its overhead leaves that time out.
    pub async fn waits<T>(&self, clock: &impl Clock, others: impl Future<Output = T>) -> T {
        let begun = clock.now();
        let result = others.await;
        self.waited.add(clock.now().since(begun));
        result
    }
}

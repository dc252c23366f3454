//! A keyed request, whole: admitted here, forwarded by a peer, or taken from a job.
//!
//! All flows carry it on. It must not change once it is made.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::gateway::limits::concurrency::Place;
use crate::gateway::limits::quota::Charged;
use crate::gateway::policy::route::{Binding, Policy};
use crate::gateway::telemetry::times::{RouteTimes, Waited};
use crate::ports::Clock;
use crate::protocol::digest::Digest32;
use crate::protocol::escrow::Meanings;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyId;
use crate::protocol::record::RequestId;
use crate::protocol::time::Moment;

/// The party that waits for the result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A client, for the answer.
    Client,
    /// A client that gets the address of the later answer.
    Later { preferred: bool },
    /// A worker, for its job.
    Worker,
}

/// A keyed request, whole.
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
    pub method: Method,
    pub target: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub fingerprint: Fingerprint,
    pub request_id: RequestId,
    pub arrived: Moment,
    /// Time that the asking party will wait for the answer.
    pub deadline: Duration,
    /// The party that waits for the result.
    pub by: By,
    /// Charges to its tenant's quotas here: at the gateway that the client asked.
    pub(in crate::gateway) charged: Charged,
    /// The series of its route, if its client came to this gateway.
    pub(in crate::gateway) times: Option<Arc<RouteTimes>>,
    /// Time that it waited for others.
    pub(in crate::gateway) waited: Waited,
    /// Its place among the requests that are here at once, kept as long as this value; a job has
    /// none.
    pub(in crate::gateway) _place: Option<Place>,
}

impl Ask {
    /// The principal that a claim of this request binds the key to, if its route wants that. A
    /// job's key stays bound as its client was told, even if the route changed since.
    pub(in crate::gateway) fn bound_to(&self) -> Option<Digest32> {
        match (self.by, self.policy.bind) {
            (By::Worker, _) | (By::Client | By::Later { .. }, Binding::Principal) => self.principal,
            (By::Client | By::Later { .. }, Binding::Tenant) => None,
        }
    }

    /// Waits for others on behalf of this request: its overhead leaves that time out.
    pub(in crate::gateway) async fn waits<T>(
        &self,
        clock: &impl Clock,
        others: impl Future<Output = T>,
    ) -> T {
        let begun = clock.now();
        let result = others.await;
        self.waited.add(clock.now().since(begun));
        result
    }
}

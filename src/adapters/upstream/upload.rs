//! The body of a request on its way to the upstream: the code notices whether the client or the
//! upstream delays it.
//!
//! An upstream may be silent for a bounded time only. The listener bounds a client that sends its
//! body slowly, so waits for the client must not count here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::adapters::system::lock;
use crate::ports::{Body, BodyError, Polled};

#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// The client, for the next piece of the body.
    Client,
    /// The upstream, since this moment: to take the next piece, or to answer.
    Upstream(Instant),
}

#[derive(Clone, Debug)]
pub(super) struct Upload(Arc<Mutex<Waiting>>);

impl Upload {
    /// Completes with `answer`, or with `None` after a single wait of `span` for the upstream.
    pub(super) async fn unless_silent<T>(
        &self,
        span: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        // No wait counts before the request was handed over.
        if let Waiting::Upstream(since) = &mut *lock(&self.0) {
            *since = Instant::now();
        }
        loop {
            if let Ok(answered) = timeout_at(self.since() + span, answer.as_mut()).await {
                return Some(answered);
            }
            if self.since() + span <= Instant::now() {
                return None;
            }
        }
    }

    fn since(&self) -> Instant {
        match *lock(&self.0) {
            Waiting::Client => Instant::now(),
            Waiting::Upstream(since) => since,
        }
    }
}

/// Wraps the body of a request. A request without a body stays as it is.
pub(super) fn watched(request: Request<Body>) -> (Request<Body>, Option<Upload>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let upload = Upload(Arc::new(Mutex::new(Waiting::Upstream(Instant::now()))));
    let of_body = upload.clone();
    (request.map(|body| Watched { body, upload: of_body }.boxed_unsync()), Some(upload))
}

struct Watched {
    body: Body,
    upload: Upload,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        *lock(&self.upload.0) = match &polled {
            Poll::Pending => Waiting::Client,
            Poll::Ready(_) => Waiting::Upstream(Instant::now()),
        };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

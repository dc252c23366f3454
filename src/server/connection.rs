//! One HTTP connection to its end: by itself, a stop or a cut. And bodies that were given up.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};

use super::Stop;
use super::guard::{LINGER, LINGER_SILENT};
use super::idle_watch::Cut;
use crate::ports::{Body, BodyError, Polled};

/// Longest time for a connection that was idle to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// Serves until the connection ends.
///
/// After a stop it takes no more requests: `finish` has it end once those so far are answered. When
/// `cut` completes, the connection is ended: gently if it was idle, at once otherwise. The error is
/// why the connection broke.
pub async fn drive<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    finish: fn(Pin<&mut C>),
    stop: &mut Stop,
    cut: impl Future<Output = Cut>,
) -> Result<(), String> {
    let cut = tokio::select! {
        biased;
        ended = &mut connection => return ended.map_err(|error| said(&error)),
        () = stop.wait() => None,
        cut = cut => Some(cut),
    };
    match cut {
        None => {
            finish(connection.as_mut());
            connection.await.map_err(|error| said(&error))
        }
        Some(Cut::Idle) => {
            finish(connection.as_mut());
            // After an error too, dropping the connection is all that is left to do.
            drop(timeout(GOODBYE, connection).await);
            Ok(())
        }
        Some(Cut::Stalled) => Err("cut: an answer was not read in time".to_owned()),
        Some(Cut::GivenUp) => Err("cut: too many requests were given up".to_owned()),
    }
}

fn said(error: &hyper::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Wraps the body of an HTTP/2 request: if it is given up before its end, the client's further
/// bytes are thrown away for a while. Dropping the result needs a runtime.
///
/// HTTP/2 allows a stream to be reset right behind its answer (RFC 9113 section 8.1). But clients
/// that still write then lose the answer (curl 7.88 does). [`super::guard`] does the same below
/// HTTP/1.
pub fn lingering(body: Body) -> Body {
    if body.is_end_stream() {
        return body;
    }
    Lingering(Some(body)).boxed_unsync()
}

struct Lingering(Option<Body>);

impl http_body::Body for Lingering {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let Some(body) = self.0.as_mut() else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.0 = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        tokio::spawn(async move {
            let rest = async { while let Ok(Some(Ok(_))) = timeout(LINGER_SILENT, body.frame()).await {} };
            tokio::select! {
                biased;
                () = rest => {}
                () = sleep(LINGER) => {}
            }
        });
    }
}

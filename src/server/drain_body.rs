//! A request's body that was given up before its end: for a while, the client's further bytes are
//! thrown away.
//!
//! HTTP/2 allows a stream to be reset right behind its answer (RFC 9113 section 8.1). But clients
//! that still write then lose the answer (curl 7.88 does). `public` wraps the bodies of HTTP/2
//! requests; [`super::guard`] does the same below HTTP/1. This file must not keep any of the bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};

use super::guard::{LINGER, LINGER_SILENT};
use crate::ports::{Body, BodyError, Polled};

/// Wraps a body. Dropping the result needs a runtime.
pub fn lingering(body: Body) -> Body {
    if body.is_end_stream() {
        return body;
    }
    Lingering(Some(body)).boxed_unsync()
}

/// The body, until it ended or failed.
struct Lingering(Option<Body>);

impl http_body::Body for Lingering {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let Some(body) = self.0.as_mut() else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
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

//! Streaming bodies, as they pass between the listeners, the gateway and the upstreams.
//!
//! One boxed type, so that no port is generic over bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// The reason why a body broke off. The text is for logs; it never holds body bytes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

/// A request's or an answer's body.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// The answer of a body to a poll for its next frame.
pub type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A body whose bytes are all here.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An empty body.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// The result of [`collect`].
pub enum Collected {
    /// The whole body, within the limit.
    Whole(Bytes),
    /// More than the limit: the bytes that were read so far, and the rest still to come.
    Over(Bytes, Body),
}

/// Reads a body up to `limit` bytes. Waits for the sender; the caller bounds the time.
pub async fn collect(mut body: Body, limit: usize) -> Result<Collected, BodyError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers are dropped: they must never become headers.
        let Ok(data) = frame?.into_data() else { continue };
        whole.extend_from_slice(&data);
        if whole.len() > limit {
            return Ok(Collected::Over(whole.freeze(), body));
        }
    }
    Ok(Collected::Whole(whole.freeze()))
}

/// A body that gives `first`, then the rest of `rest`.
pub fn chain(first: Bytes, rest: Body) -> Body {
    Chain { first: Some(first), rest }.boxed_unsync()
}

struct Chain {
    first: Option<Bytes>,
    rest: Body,
}

impl http_body::Body for Chain {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}

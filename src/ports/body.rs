//! Streaming bodies, as they pass between the listeners, the gateway and the upstreams.
//!
//! Neighbours: every port that carries a request or an answer. One boxed type, so that no port is generic over bodies. It must
//! not buffer: whoever needs a whole body says so and names a limit ([`collect`]).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// Why a body broke off. The text is for logs; it never holds body bytes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

/// A request's or an answer's body.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// What [`collect`] found.
pub enum Collected {
    /// The whole body, within the limit.
    Whole(Bytes),
    /// More than the limit: what was read so far, and the rest still to come.
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

/// A body that gives `first`, then what is left of `rest`.
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}

//! A body that is copied while it streams by, up to a limit.
//!
//! The copy never delays or changes the body: the reader sets the pace, and gets every piece as it
//! comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, SizeHint};
use http_body_util::BodyExt;

use crate::ports::{Body, BodyError, Polled};

#[derive(Debug, PartialEq, Eq)]
pub enum Copied {
    Whole(Bytes),
    /// More than the limit came by.
    Over,
    /// The body broke off, or was given up by its reader.
    Broken,
}

/// Receiver of the copy: called once, at the body's end, at its limit, or when it is given up.
type AtEnd = Box<dyn FnOnce(Copied) + Send>;

pub fn tee(inner: Body, limit: usize, at_end: impl FnOnce(Copied) + Send + 'static) -> Body {
    let mut tee = Tee { inner, copy: BytesMut::new(), limit, at_end: Some(Box::new(at_end)) };
    if tee.inner.is_end_stream() {
        tee.finish();
    }
    tee.boxed_unsync()
}

struct Tee {
    inner: Body,
    copy: BytesMut,
    limit: usize,
    at_end: Option<AtEnd>,
}

impl Tee {
    fn finish(&mut self) {
        if let Some(at_end) = self.at_end.take() {
            at_end(Copied::Whole(std::mem::take(&mut self.copy).freeze()));
        }
    }

    fn copy(&mut self, data: &Bytes) {
        if self.at_end.is_none() {
            return;
        }
        if self.copy.len() + data.len() <= self.limit {
            self.copy.extend_from_slice(data);
        } else if let Some(at_end) = self.at_end.take() {
            self.copy = BytesMut::new();
            at_end(Copied::Over);
        }
    }
}

impl http_body::Body for Tee {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => {}
            Poll::Ready(None) => self.finish(),
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.copy(data);
                }
                // A reader may not poll again once the body says that it is over.
                if self.inner.is_end_stream() {
                    self.finish();
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        if let Some(at_end) = self.at_end.take() {
            at_end(Copied::Broken);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::ports::body::{Collected, chain, collect, empty, full};

    async fn through(body: Body, limit: usize) -> (Bytes, Copied) {
        let (send, copied) = mpsc::channel();
        let hint = body.size_hint().exact();
        let teed = tee(body, limit, move |copy| send.send(copy).unwrap());
        assert_eq!(teed.size_hint().exact(), hint, "a length that is known stays known");
        let Ok(Collected::Whole(bytes)) = collect(teed, 1 << 10).await else { panic!("a whole body") };
        let first = copied.recv().unwrap();
        assert!(copied.recv().is_err(), "told once");
        (bytes, first)
    }

    #[tokio::test]
    async fn a_tee_passes_everything_and_keeps_a_bounded_copy() {
        let pieces = || chain(Bytes::from_static(b"one"), full("two"));
        assert_eq!(through(pieces(), 6).await, ("onetwo".into(), Copied::Whole("onetwo".into())));
        assert_eq!(through(pieces(), 5).await, ("onetwo".into(), Copied::Over));
        assert_eq!(through(empty(), 0).await, (Bytes::new(), Copied::Whole(Bytes::new())));
    }

    #[test]
    fn a_body_that_nobody_reads_is_broken() {
        let (send, copied) = mpsc::channel();
        drop(tee(full("x"), 9, move |copy| send.send(copy).unwrap()));
        assert_eq!(copied.recv(), Ok(Copied::Broken));
    }
}

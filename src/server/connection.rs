//! One HTTP connection: its socket, its way to an end by itself, a stop or a cut, and bodies that
//! were given up.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::Fuse;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

use super::Stop;
use super::guard::{LINGER, LINGER_SILENT};
use super::heads::PREFACE;
use super::idle_watch::Cut;
use crate::ports::body::empty;
use crate::ports::{Body, BodyError, Polled, observe};

/// Longest time for a connection that was idle to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// A client's socket with a bound on waiting for its reader, and a look at its first bytes.
pub struct Paced {
    stream: TcpStream,
    /// Bytes looked at and not read yet.
    early: BytesMut,
    /// Longest time for a write to wait for the client to read.
    patience: Duration,
    /// End of the waiting write's time.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    /// Makes a socket on which a write fails once the client has read nothing for `patience`.
    pub fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, early: BytesMut::new(), patience, stalled: None }
    }

    /// Says whether the client begins an HTTP/2 connection.
    ///
    /// It waits for as many bytes as that takes. Later reads return the same bytes. An end before
    /// the first byte is an error.
    pub async fn begins_http2(&mut self) -> io::Result<bool> {
        while PREFACE.starts_with(&self.early) && self.early.len() < PREFACE.len() {
            if self.stream.read_buf(&mut self.early).await? == 0 {
                return match self.early.is_empty() {
                    true => Err(io::ErrorKind::UnexpectedEof.into()),
                    false => Ok(false),
                };
            }
        }
        Ok(self.early.starts_with(PREFACE))
    }

    /// Notes whether a write made progress, and fails it if none did for too long.
    fn bounded<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => {
                metrics::counter!(observe::CONNECTIONS_CUT, "reason" => Cut::STALLED.reason).increment(1);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

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
    if let Some(Cut { fault: Some(why), .. }) = cut {
        return Err(format!("cut: {why}"));
    }
    finish(connection.as_mut());
    if cut.is_none() {
        return connection.await.map_err(|error| said(&error));
    }
    // After an error too, dropping the connection is all that is left to do.
    drop(timeout(GOODBYE, connection).await);
    Ok(())
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
    Lingering(body.fuse()).boxed_unsync()
}

struct Lingering(Fuse<Body>);

impl http_body::Body for Lingering {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if self.0.is_end_stream() {
            return;
        }
        let mut body = std::mem::replace(&mut self.0, empty().fuse());
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

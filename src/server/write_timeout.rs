//! A client's socket with a bound on waiting for its reader, and a look at its first bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::idle_watch::Cut;
use crate::ports::observe;

/// First bytes of an HTTP/2 client (RFC 9113 section 3.4). No HTTP/1 request begins with them.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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
                metrics::counter!(observe::CONNECTIONS_CUT, "reason" => Cut::Stalled.reason()).increment(1);
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

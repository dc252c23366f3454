//! The heads of an upstream's answers, judged between the socket and hyper's parser.
//!
//! hyper takes a bare LF for a line's end. Another reader does not: a part of a value there would
//! be a header here. So such a head breaks the connection, and the outcome is unknown.
//! [`super::connection`] says when an answer is awaited. This file must not change a byte, nor look
//! at bodies: between two heads every byte passes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Largest head of an answer, with [`OF_FIELD`] more per line: it fits between peers.
const HEAD_LIMIT: usize = 96 * 1024;
/// Cost of a line beside its bytes, as HTTP/2 counts (RFC 9113 section 6.5.2).
const OF_FIELD: usize = 32;
/// Most headers of an answer: hyper fails beyond, and here the reason is said.
const MOST_HEADERS: usize = 100;

/// A flag for the socket: an answer is awaited from now on.
#[derive(Clone, Debug, Default)]
pub struct Awaited(Arc<AtomicBool>);

impl Awaited {
    /// Says that the next byte that arrives begins a head.
    pub fn head(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub struct Strict<S> {
    stream: S,
    awaited: Awaited,
    head: Option<Head>,
}

impl<S> Strict<S> {
    pub fn new(stream: S, awaited: Awaited) -> Self {
        Self { stream, awaited, head: None }
    }
}

#[derive(Default)]
struct Head {
    /// Counted size so far.
    size: usize,
    /// Bytes of the present line, without its end.
    line: usize,
    headers: usize,
    after_cr: bool,
    /// True once its first line has arrived.
    begun: bool,
    /// Class of its status.
    class: u8,
}

impl Head {
    /// Takes a byte in. `true` if it was the last one.
    fn take(&mut self, byte: u8) -> Result<bool, &'static str> {
        self.size += 1;
        if self.size > HEAD_LIMIT {
            return Err("the head of the upstream's answer is too large");
        }
        match (byte, self.after_cr) {
            (b'\n', false) => Err("a line of the upstream's answer ends with LF alone"),
            (b'\n', true) => {
                let ended = self.begun && self.line == 0;
                self.headers += usize::from(self.begun && self.line > 0);
                if self.headers > MOST_HEADERS {
                    return Err("the upstream's answer has more than 100 headers");
                }
                self.begun |= self.line > 0;
                self.size += OF_FIELD;
                (self.line, self.after_cr) = (0, false);
                // After an interim answer (1xx) another head follows.
                if ended && self.class == b'1' {
                    *self = Self::default();
                    return Ok(false);
                }
                Ok(ended)
            }
            (_, true) => Err("a line of the upstream's answer has a CR without its LF"),
            (b'\r', false) => {
                self.after_cr = true;
                Ok(false)
            }
            (_, false) => {
                // `HTTP/1.1 200`
                if !self.begun && self.line == 9 {
                    self.class = byte;
                }
                self.line += 1;
                Ok(false)
            }
        }
    }
}

/// The methods of `AsyncWrite`, for a type that only reads in its own way: they pass on to its
/// field `stream`.
macro_rules! writes_through {
    () => {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(context, bytes)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write_vectored(context, parts)
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
    };
}
pub(crate) use writes_through;

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let strict = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut strict.stream).poll_read(context, buffer))?;
        if strict.awaited.0.swap(false, Ordering::SeqCst) {
            strict.head = Some(Head::default());
        }
        for byte in &buffer.filled()[before..] {
            let Some(head) = strict.head.as_mut() else { break };
            match head.take(*byte) {
                Ok(false) => {}
                Ok(true) => strict.head = None,
                Err(why) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    writes_through!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of an answer's head in bytes; `Ok(None)` if it has not ended.
    fn end(text: &str) -> Result<Option<usize>, &'static str> {
        let mut head = Head::default();
        for (at, byte) in text.bytes().enumerate() {
            if head.take(byte)? {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    #[test]
    fn an_interim_response_does_not_end_the_head() {
        for head in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200\r\na: b\r\n\r\n",
            "\r\nHTTP/1.1 404 \r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\na: b\r\n\r\nHTTP/1.1 201 Made\r\n\r\n",
        ] {
            assert_eq!(end(&format!("{head}a\nb\rc")), Ok(Some(head.len())), "{head:?}");
            for cut in 0..head.len() {
                assert_eq!(end(&head[..cut]), Ok(None), "{:?}", &head[..cut]);
            }
        }
    }

    #[test]
    fn a_line_that_two_readers_end_in_two_places_breaks() {
        for head in [
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\r\na: b\nc: d\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\rc: d\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n\n",
            "\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\n\n",
        ] {
            assert!(end(head).is_err(), "{head:?}");
        }
        let lines = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:\r\n".repeat(count));
        assert!(matches!(end(&lines(MOST_HEADERS)), Ok(Some(_))));
        assert_eq!(end(&lines(MOST_HEADERS + 1)), Err("the upstream's answer has more than 100 headers"));
        let long = format!("HTTP/1.1 200 OK\r\na:{}\r\n\r\n", "b".repeat(HEAD_LIMIT));
        assert_eq!(end(&long), Err("the head of the upstream's answer is too large"));
    }
}

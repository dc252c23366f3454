//! The framing guard: between the socket and hyper's HTTP/1 parser, it passes only framing that
//! every reader reads in the same way.
//!
//! [`super::head`] and [`super::chunks`] judge; [`super::admission`] answers the refusals.
//!
//! The rule: hyper gets nothing but
//! 1. whole heads that [`super::head::framing`] passed,
//! 2. after each head exactly the body bytes that the head announces,
//! 3. at most one [`MARKER`], and nothing after it.
//!
//! The argument: a head begins only where the body before it ended, and only one reading of that
//! end is left. So no byte of a body is ever taken for a head, over keep-alive and pipelining too.
//!
//! The marker is a request that admission always refuses (target `*`), so a client that writes it
//! gains nothing. hyper answers it after all earlier requests, with the problem in [`Refusal`], and
//! closes.
//!
//! A flaw inside a chunked body comes after its head was passed. There the body breaks off, and its
//! reader refuses the request.
//!
//! After a refusal nothing more is judged. Further bytes are thrown away, so that the refusal is
//! not lost to a reset. No byte is changed, but trailers are left out whole.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::chunks::{Chunks, Step};
use super::head::{self, Framing, no_room_for_head};
use super::heads::Held;
use crate::gateway::request::problems::{Kind, Problem};

/// Head that hyper gets in place of a refused one.
const MARKER: &[u8] = b"OPTIONS * HTTP/1.1\r\nhost: refused\r\n\r\n";
const PIECE: usize = 16 * 1024;
/// Time for which a client's further bytes are thrown away after its answer was written. Many
/// clients read the answer only when they have sent everything.
pub(super) const LINGER: Duration = Duration::from_secs(30);
/// Longest silence of a client in that time.
pub(super) const LINGER_SILENT: Duration = Duration::from_secs(2);

/// The guard's refusal of its connection. Empty as long as it refused nothing.
pub type Refusal = Arc<OnceLock<Problem>>;

/// Position of the next byte in the client's stream.
enum At {
    /// In a head. The number is how many bytes of it were looked at.
    Head(usize),
    /// In a body, with this many bytes to come.
    Length(u64),
    Chunked(Chunks),
    Refused,
}

pub struct Guard<S> {
    stream: S,
    at: At,
    /// Bytes read and not judged yet.
    raw: BytesMut,
    /// Bytes judged and not given to hyper yet.
    ready: BytesMut,
    refusal: Refusal,
    /// It counts the bytes of an unfinished head. After a large head it keeps counting as much,
    /// since buffers stay as large as they were.
    held: Held,
    largest: usize,
    head_time: Duration,
    /// Moment at which an unfinished head is late.
    late: Option<Pin<Box<Sleep>>>,
    /// End of lingering, and its earlier end if nothing arrives.
    closing: Option<[Pin<Box<Sleep>>; 2]>,
    /// True from a write until everything was flushed.
    writes: bool,
    rests: Arc<AtomicBool>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    /// Guards a stream. A head may take `head_time` from its first byte. `held` holds nothing yet.
    pub fn new(stream: S, head_time: Duration, held: Held, refusal: Refusal) -> Self {
        Self {
            stream,
            at: At::Head(0),
            raw: BytesMut::new(),
            ready: BytesMut::new(),
            refusal,
            held,
            largest: 0,
            head_time,
            late: None,
            closing: None,
            writes: false,
            rests: Arc::default(),
        }
    }

    /// Says from beside hyper whether the stream rests: everything was written, and no byte of the
    /// next request is here.
    pub fn rests(&self) -> Arc<AtomicBool> {
        self.rests.clone()
    }

    /// Waits for the next request without a buffer. `false` if the client has ended its stream.
    /// `unread` is what hyper had read of it, which keeps hyper's whole buffer until it is dropped.
    pub async fn next(&mut self, unread: Bytes) -> io::Result<bool> {
        // Copies, so that what is here takes no more than its length.
        self.raw = BytesMut::from(&self.raw[..]);
        self.ready = BytesMut::from([&unread[..], &self.ready].concat().as_slice());
        drop(unread);
        self.largest = 0;
        self.held.hold(0);
        match self.raw.is_empty() && self.ready.is_empty() {
            true => poll_fn(|context| self.piece(context, true)).await.map(|count| count > 0),
            false => Ok(true),
        }
    }

    fn note(&mut self) {
        let rests = matches!(self.at, At::Head(0)) && self.raw.is_empty() && self.ready.is_empty();
        self.rests.store(rests && !self.writes && self.closing.is_none(), Ordering::Relaxed);
    }

    /// Makes bytes ready if enough were read. `true` if it did.
    fn judge(&mut self) -> io::Result<bool> {
        match &mut self.at {
            At::Head(seen) => {
                // Empty lines before a request are ignored (RFC 9112 section 2.2). They count
                // within the head's time.
                while *seen == 0 && self.raw.starts_with(b"\r\n") {
                    self.raw.advance(2);
                }
                match head::end(&self.raw, *seen) {
                    Ok(Some(end)) => self.pass_head(end),
                    Ok(None) => {
                        *seen = if self.raw[..] == *b"\r" { 0 } else { self.raw.len() };
                        if !self.held.hold(self.raw.capacity().max(self.largest)) {
                            self.refuse(no_room_for_head());
                        }
                    }
                    Err(problem) => self.refuse(problem),
                }
            }
            At::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(self.raw.len());
                self.ready = match here == self.raw.len() {
                    true => std::mem::take(&mut self.raw),
                    false => self.raw.split_to(here),
                };
                self.passed(here);
            }
            At::Chunked(chunks) => loop {
                match chunks.next(&self.raw) {
                    Ok(Step::Pass(count)) => {
                        self.ready = self.raw.split_to(count);
                        break;
                    }
                    Ok(Step::Drop(count)) => self.raw.advance(count),
                    Ok(Step::Last(count)) => {
                        self.ready = self.raw.split_to(count);
                        self.at = At::Head(0);
                        break;
                    }
                    Ok(Step::More) => break,
                    Err(flaw) => {
                        self.at = At::Refused;
                        return Err(io::Error::new(io::ErrorKind::InvalidData, flaw));
                    }
                }
            },
            At::Refused => {}
        }
        Ok(!self.ready.is_empty())
    }

    fn pass_head(&mut self, end: usize) {
        match head::framing(&self.raw[..end]) {
            Ok(framing) => {
                self.largest = self.largest.max(end);
                if !self.held.hold(self.largest) {
                    return self.refuse(no_room_for_head());
                }
                // A copy of the rest, so that it does not keep the memory of the head.
                let rest = BytesMut::from(&self.raw[end..]);
                self.ready = std::mem::replace(&mut self.raw, rest);
                self.ready.truncate(end);
                self.late = None;
                self.at = match framing {
                    Framing::Length(0) => At::Head(0),
                    Framing::Length(length) => At::Length(length),
                    Framing::Chunked => At::Chunked(Chunks::Size),
                };
            }
            Err(problem) => self.refuse(problem),
        }
    }

    fn refuse(&mut self, problem: Problem) {
        // The first refusal is the only one.
        let _ = self.refusal.set(problem);
        self.raw = BytesMut::new();
        self.held.hold(self.largest);
        self.ready = BytesMut::from(MARKER);
        self.at = At::Refused;
    }

    fn passed(&mut self, count: usize) {
        match &mut self.at {
            At::Length(left) => {
                *left -= count as u64;
                if *left == 0 {
                    self.at = At::Head(0);
                }
            }
            At::Chunked(Chunks::Data(left)) => {
                *left -= count as u64;
                if *left == 0 {
                    self.at = At::Chunked(Chunks::DataEnd);
                }
            }
            At::Head(_) | At::Chunked(_) | At::Refused => {}
        }
    }

    /// Reads the next piece, to be judged or to be thrown away. 0 at the end of the stream.
    fn piece(&mut self, context: &mut Context<'_>, is_judged: bool) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut piece))?;
        if is_judged {
            self.raw.extend_from_slice(piece.filled());
        }
        Poll::Ready(Ok(piece.filled().len()))
    }

    fn head_is_late(&mut self, context: &mut Context<'_>) -> bool {
        if !matches!(self.at, At::Head(_)) || self.raw.is_empty() {
            return false;
        }
        let head_time = self.head_time;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(head_time)));
        late.as_mut().poll(context).is_ready()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        loop {
            if !guard.ready.is_empty() {
                let count = guard.ready.len().min(buffer.remaining());
                buffer.put_slice(&guard.ready[..count]);
                guard.ready.advance(count);
                if guard.ready.is_empty() {
                    guard.ready = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            if guard.judge()? {
                continue;
            }
            if matches!(guard.at, At::Refused) {
                // An end of the stream here must not look like a hang-up: the refusal still has to
                // be sent.
                while let Poll::Ready(Ok(1..)) = guard.piece(context, false) {}
                return Poll::Pending;
            }
            // Data of a body needs no judgement: it is read straight into hyper's buffer.
            if let At::Length(left) | At::Chunked(Chunks::Data(left)) = guard.at
                && guard.raw.is_empty()
            {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.remaining());
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
                ready!(Pin::new(&mut guard.stream).poll_read(context, &mut part))?;
                let count = part.filled().len();
                buffer.advance(count);
                guard.passed(count);
                return Poll::Ready(Ok(()));
            }
            match guard.piece(context, true) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if guard.head_is_late(context) => {
                    let within = guard.head_time;
                    guard.refuse(
                        Kind::HeadTooSlow
                            .said(format!("a head must arrive within {within:?} of its first byte")),
                    )
                }
                Poll::Pending => {
                    guard.note();
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes = true;
        self.note();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes = true;
        self.note();
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.writes = false;
        self.note();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        guard.rests.store(false, Ordering::Relaxed);
        if guard.closing.is_none() {
            ready!(Pin::new(&mut guard.stream).poll_shutdown(context))?;
            // Closing while the client still sends would reset the connection. The answer might be
            // lost with it.
            if matches!(guard.at, At::Head(_)) && guard.raw.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
        loop {
            let [end, silent] = guard
                .closing
                .get_or_insert_with(|| [LINGER, LINGER_SILENT].map(|span| Box::pin(sleep(span))));
            if end.as_mut().poll(context).is_ready() || silent.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            guard.raw = BytesMut::new();
            match ready!(guard.piece(context, false)) {
                Ok(0) | Err(_) => return Poll::Ready(Ok(())),
                Ok(_) => guard.closing.iter_mut().for_each(|[_, silent]| {
                    silent.as_mut().reset(Instant::now() + LINGER_SILENT);
                }),
            }
        }
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;

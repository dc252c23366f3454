//! One budget for the heads of all requests of a process, in bytes.
//!
//! The first [`FREE`] bytes of each head do not count, so usual heads pass while others fill the
//! budget. Nobody waits: without room, a head is refused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head::HEAD_LIMIT;
use crate::adapters::writes_through;

/// First bytes of an HTTP/2 client (RFC 9113 section 3.4). No HTTP/1 request begins with them.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a head that do not count.
pub const FREE: usize = 4 * 1024;

#[derive(Debug, Default)]
pub struct Heads {
    held: AtomicUsize,
}

/// The part of the budget of one connection or request. Dropping it gives the part back.
#[derive(Debug)]
pub struct Held {
    heads: Arc<Heads>,
    most: usize,
    bytes: usize,
}

impl Heads {
    /// Makes a part that holds nothing. All parts together may hold `most` bytes.
    pub fn nothing(self: &Arc<Self>, most: usize) -> Held {
        Held { heads: self.clone(), most, bytes: 0 }
    }
}

impl Held {
    /// Holds a head of this many bytes in place of the one before.
    ///
    /// `false` if there is no room: then the part stays as it was. A smaller head always has room.
    pub fn hold(&mut self, head: usize) -> bool {
        let bytes = head.saturating_sub(FREE);
        let (before, most) = (self.bytes, self.most);
        let room = self.heads.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |all| {
            let after = all - before + bytes;
            (bytes <= before || after <= most).then_some(after)
        });
        if room.is_ok() {
            self.bytes = bytes;
        }
        room.is_ok()
    }

    /// True if it holds a part of the budget: the head is larger than most.
    pub fn counts(&self) -> bool {
        self.bytes > 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.heads.held.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// A client's HTTP/2 stream whose unfinished header blocks are counted, below the parser.
///
/// A block may come in many frames, and a few bytes of it may stand for many (HPACK). So an
/// unfinished block counts as the largest list that is taken. The parser keeps the decoded part
/// until the block ends. No byte is changed.
pub struct Blocks<S> {
    stream: S,
    held: Held,
    /// Bytes to come before the next frame's head.
    skip: usize,
    /// Bytes of the next frame's head so far.
    head: Vec<u8>,
}

impl<S> Blocks<S> {
    /// Makes a stream from which nothing was read. `held` holds nothing yet.
    pub fn new(stream: S, held: Held) -> Self {
        Self { stream, held, skip: PREFACE.len(), head: Vec::with_capacity(FRAME_HEAD) }
    }

    /// Looks at bytes that arrived. `false` if a block begins and the budget has no room for it.
    fn see(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let (wanted, in_head) = match self.skip {
                0 => (FRAME_HEAD - self.head.len(), true),
                skip => (skip, false),
            };
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if !in_head {
                self.skip -= part.len();
                continue;
            }
            self.head.extend_from_slice(part);
            let [a, b, c, kind, flags, ..] = self.head[..] else { continue };
            if self.head.len() < FRAME_HEAD {
                continue;
            }
            self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            self.head.clear();
            if matches!(kind, HEADERS | CONTINUATION) {
                let begun = if flags & END_HEADERS == 0 { HEAD_LIMIT } else { 0 };
                if !self.held.hold(begun) {
                    return false;
                }
            }
        }
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Blocks<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let blocks = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut blocks.stream).poll_read(context, buffer))?;
        Poll::Ready(match blocks.see(&buffer.filled()[before..]) {
            true => Ok(()),
            false => Err(io::Error::other("no room for one more head that comes in pieces")),
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Blocks<S> {
    writes_through!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_bytes_beyond_the_free_ones_are_counted() {
        let heads = Arc::<Heads>::default();
        let (mut one, mut other) = (heads.nothing(100), heads.nothing(100));
        assert!(one.hold(FREE + 70) && other.hold(FREE));
        assert!(!other.hold(FREE + 31), "no room");
        assert!(other.hold(FREE + 30) && other.hold(FREE + 20), "less is always possible");
        assert!(one.hold(FREE + 80));
        drop(one);
        assert!(other.hold(FREE + 100));
        let mut lowered = heads.nothing(10);
        assert!(!lowered.hold(FREE + 1) && lowered.hold(FREE));
        drop((other, lowered));
        assert_eq!(heads.held.load(Ordering::SeqCst), 0);
    }

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        [&[0, 0, length, kind, flags, 0, 0, 0, 1][..], &vec![0xff; usize::from(length)]].concat()
    }

    #[test]
    fn a_header_block_counts_across_all_its_frames() {
        const PING: u8 = 6;
        let begun = [
            PREFACE.to_vec(),
            frame(HEADERS, END_HEADERS, 0),
            frame(PING, 0, 8),
            frame(HEADERS, 1, 9),
            frame(CONTINUATION, 0, 200),
        ]
        .concat();
        for cut in 1..begun.len() {
            let heads = Arc::<Heads>::default();
            let mut blocks = Blocks::new((), heads.nothing(HEAD_LIMIT));
            assert!(begun.chunks(cut).all(|piece| blocks.see(piece)));
            let mut other = Blocks::new((), heads.nothing(HEAD_LIMIT));
            assert!(!other.see(&[PREFACE.to_vec(), frame(HEADERS, 0, 1)].concat()), "{cut}");
            assert!(blocks.see(&frame(CONTINUATION, END_HEADERS, 3)));
            let mut third = Blocks::new((), heads.nothing(HEAD_LIMIT));
            assert!(third.see(&[PREFACE.to_vec(), frame(HEADERS, 0, 1)].concat()), "{cut}: it has ended");
        }
    }
}

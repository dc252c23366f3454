//! The watch over a public connection: idle, unread or given up too often, it is cut.
//!
//! An HTTP/2 client can hold an answer up without holding up the socket (a window that stays shut).
//! It can also send and reset requests without end. Neither shows below hyper, so this file watches
//! answers above it. `connection::Paced` bounds the delays of the socket itself.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::locked;
use crate::ports::{Body, BodyError, Polled};

/// Most bytes of an answer at once: so many a slow client must take to count as reading.
const PIECE: usize = 64 * 1024;
/// Most requests that a connection may give up beyond the number that were answered.
const MOST_GIVEN_UP: u32 = 100;

/// End of a connection by this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Word for metrics.
    pub reason: &'static str,
    /// Fault of the client, if it has one.
    pub fault: Option<&'static str>,
}

impl Cut {
    /// No request for too long.
    pub const IDLE: Self = Self { reason: "idle", fault: None };
    pub const STALLED: Self = Self { reason: "stalled", fault: Some("an answer was not read in time") };
    pub const GIVEN_UP: Self = Self { reason: "given_up", fault: Some("too many requests were given up") };
}

pub struct Watch {
    idle_time: Duration,
    write_stall: Duration,
    state: Mutex<State>,
    given_up: Notify,
}

struct State {
    next: u64,
    /// Number of requests that are being answered.
    open: usize,
    /// Moment since which no request is open.
    since: Instant,
    /// Answers whose next piece nobody takes, and since when.
    waiting: Vec<(u64, Instant)>,
    given_up: u32,
}

impl Watch {
    pub fn new(idle_time: Duration, write_stall: Duration) -> Arc<Self> {
        let state = State { next: 0, open: 0, since: Instant::now(), waiting: Vec::new(), given_up: 0 };
        Arc::new(Self { idle_time, write_stall, state: Mutex::new(state), given_up: Notify::new() })
    }

    pub fn open(self: &Arc<Self>) -> Open {
        let mut state = locked(&self.state);
        state.next += 1;
        state.open += 1;
        Open { watch: self.clone(), id: state.next, answered: false }
    }

    /// Completes when the connection has to be cut: at the latest when twice its bound has passed.
    pub async fn cut(&self) -> Cut {
        loop {
            let now = Instant::now();
            let next = match self.look(now) {
                ControlFlow::Break(cut) => return cut,
                ControlFlow::Continue(next) => next,
            };
            drop(timeout_at(next, self.given_up.notified()).await);
        }
    }

    /// Completes once no request was open for `span`.
    pub async fn quiet(&self, span: Duration) {
        loop {
            let end = {
                let state = locked(&self.state);
                let since = if state.open == 0 { state.since } else { Instant::now() };
                since + span
            };
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Returns the reason to cut, or the moment to look again.
    fn look(&self, now: Instant) -> ControlFlow<Cut, Instant> {
        let state = locked(&self.state);
        let mut next = now + self.idle_time.min(self.write_stall);
        if state.given_up > MOST_GIVEN_UP {
            return ControlFlow::Break(Cut::GIVEN_UP);
        }
        if let Some(oldest) = state.waiting.iter().map(|(_, since)| since).min() {
            let end = *oldest + self.write_stall;
            if end <= now {
                return ControlFlow::Break(Cut::STALLED);
            }
            next = next.min(end);
        }
        if state.open == 0 {
            let end = state.since + self.idle_time;
            if end <= now {
                return ControlFlow::Break(Cut::IDLE);
            }
            next = next.min(end);
        }
        ControlFlow::Continue(next)
    }
}

/// A request that is being answered. Dropping it before [`Open::answered`] counts as giving it up.
pub struct Open {
    watch: Arc<Watch>,
    id: u64,
    answered: bool,
}

impl Open {
    /// Notes the answer. From now on its reader is watched.
    pub fn answered(mut self, response: Response<Body>) -> Response<Body> {
        self.answered = true;
        {
            let mut state = locked(&self.watch.state);
            state.given_up = state.given_up.saturating_sub(1);
            state.waiting.push((self.id, Instant::now()));
        }
        response.map(|body| Watched { body, rest: Bytes::new(), open: self }.boxed_unsync())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = locked(&self.watch.state);
        state.open -= 1;
        state.waiting.retain(|(waiting, _)| *waiting != self.id);
        if state.open == 0 {
            state.since = Instant::now();
        }
        if !self.answered {
            state.given_up += 1;
            if state.given_up > MOST_GIVEN_UP {
                self.watch.given_up.notify_one();
            }
        }
    }
}

/// An answer's body in pieces, each of which the reader must take in time.
struct Watched {
    body: Body,
    rest: Bytes,
    open: Open,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        // The reader is here.
        locked(&self.open.watch.state).waiting.retain(|(waiting, _)| *waiting != self.open.id);
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return other,
            }
        }
        let piece = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(piece);
        // The reader takes it along, and is waited for.
        locked(&self.open.watch.state).waiting.push((self.open.id, Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64) + self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;
    use crate::ports::body::{Collected, collect, full};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_cut_and_a_busy_one_is_not() {
        let watch = Watch::new(10 * SECOND, SECOND);
        let begun = Instant::now();
        let open = watch.open();
        assert!(tokio::time::timeout(100 * SECOND, watch.cut()).await.is_err());
        let answer = open.answered(Response::new(full("")));
        drop(answer);
        assert_eq!(watch.cut().await, Cut::IDLE);
        assert!(begun.elapsed() >= 110 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_nobody_comes_for_is_noticed() {
        let watch = Watch::new(100 * SECOND, 10 * SECOND);
        let mut answer = watch.open().answered(Response::new(full(vec![7; 2 * PIECE]))).into_body();
        for _ in 0..2 {
            assert!(tokio::time::timeout(9 * SECOND, watch.cut()).await.is_err());
            assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap().len(), PIECE);
        }
        let begun = Instant::now();
        assert_eq!(watch.cut().await, Cut::STALLED);
        assert!(begun.elapsed() <= 20 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_only_given_up_end_the_connection() {
        let watch = Watch::new(100 * SECOND, 100 * SECOND);
        for _ in 0..MOST_GIVEN_UP {
            drop(watch.open());
        }
        // An answer makes up for one.
        drop(watch.open().answered(Response::new(full(""))));
        drop(watch.open());
        assert!(tokio::time::timeout(SECOND, watch.cut()).await.is_err());
        drop(watch.open());
        assert_eq!(tokio::time::timeout(SECOND, watch.cut()).await, Ok(Cut::GIVEN_UP));
    }

    #[tokio::test]
    async fn a_body_keeps_its_bytes_and_its_length() {
        let bytes: Vec<u8> = (0..3 * PIECE + 5).map(|at| at as u8).collect();
        let watch = Watch::new(SECOND, SECOND);
        let mut answer = watch.open().answered(Response::new(full(bytes.clone()))).into_body();
        assert_eq!(answer.size_hint().exact(), Some(bytes.len() as u64));
        let first = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(answer.size_hint().exact(), Some((bytes.len() - first.len()) as u64));
        let Ok(Collected::Whole(rest)) = collect(answer, usize::MAX).await else { panic!("a whole body") };
        assert_eq!([first, rest].concat(), bytes);
        assert!(watch.open().answered(Response::new(full(""))).body().is_end_stream());
    }
}

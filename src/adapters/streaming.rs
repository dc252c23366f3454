//! Bodies as hyper receives them, turned into the ports' [`Body`]: trailers dropped, time bounded,
//! nothing buffered.
//!
//! `connection`, `peers` and the listeners wrap the bodies that they receive.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use crate::ports::{Body, BodyError, Polled};

/// Time that each byte earns a sender: 500 bytes a second are expected in the long run.
const EACH_BYTE: Duration = Duration::from_millis(2);

/// Time limit for the rest of a body.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// For all waits together. The reader's own time does not count.
    Within(Duration),
    /// The same, but each byte earns [`EACH_BYTE`] more: a stall and a drip are cut.
    Between(Duration),
    /// For each wait by itself.
    Each(Duration),
    /// No limit: other code bounds the time.
    Endless,
}

/// The connection of a body that nobody else drives. Dropped if the body breaks off.
pub trait Carrier: Send {
    fn drive(&mut self, context: &mut Context<'_>);

    /// The body has arrived whole.
    fn end(self: Box<Self>);
}

/// Wraps a body. Dropping the result gives the body up.
pub fn streaming(incoming: Incoming, patience: Patience, carrier: Option<Box<dyn Carrier>>) -> Body {
    let credit = match patience {
        Patience::Within(span) | Patience::Between(span) | Patience::Each(span) => span,
        Patience::Endless => Duration::ZERO,
    };
    let mut body = Streaming { incoming, patience, sleep: None, credit, waiting: None, over: false, carrier };
    if body.incoming.is_end_stream() {
        body.finish();
    }
    body.boxed_unsync()
}

struct Streaming {
    incoming: Incoming,
    patience: Patience,
    /// Made by the first wait: most bodies are here at once.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Time that the sender has left, unless other code bounds it.
    credit: Duration,
    /// Start of the present wait for the sender: the reader's time does not count.
    waiting: Option<Instant>,
    over: bool,
    carrier: Option<Box<dyn Carrier>>,
}

impl Streaming {
    fn finish(&mut self) {
        self.over = true;
        if let Some(carrier) = self.carrier.take() {
            carrier.end();
        }
    }

    fn fail(&mut self, why: String) -> Polled {
        self.over = true;
        self.carrier = None;
        Poll::Ready(Some(Err(BodyError(why))))
    }

    /// Starts or continues a wait for the sender. `true` if its time is over.
    fn stalled(&mut self, context: &mut Context<'_>) -> bool {
        if matches!(self.patience, Patience::Endless) {
            return false;
        }
        if self.waiting.is_none() {
            let now = Instant::now();
            self.waiting = Some(now);
            if let Some(sleep) = self.sleep.as_mut() {
                sleep.as_mut().reset(now + self.credit);
            }
        }
        let credit = self.credit;
        self.sleep.get_or_insert_with(|| Box::pin(sleep(credit))).as_mut().poll(context).is_ready()
    }

    /// Ends the wait: this many bytes arrived.
    fn came(&mut self, bytes: usize) {
        let waited = self.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.credit = self.credit.saturating_sub(waited);
        match self.patience {
            Patience::Between(span) => {
                let earned = EACH_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
                self.credit = span.min(self.credit + earned);
            }
            Patience::Each(span) => self.credit = span,
            Patience::Within(_) | Patience::Endless => {}
        }
    }

    /// The next piece of data. The connection is driven only if none is here.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        let arrived = self.poll_arrived(context);
        let Some(carrier) = self.carrier.as_mut().filter(|_| arrived.is_pending()) else { return arrived };
        carrier.drive(context);
        self.poll_arrived(context)
    }

    /// The next piece that has arrived, past trailers and empty frames.
    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        loop {
            let arrived = ready!(Pin::new(&mut self.incoming).poll_frame(context));
            // Trailers are dropped: they must never become headers. So are HTTP/2's empty last
            // frames.
            let data = arrived.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()));
            if !matches!(&data, Some(Ok(data)) if data.is_empty()) {
                return Poll::Ready(data);
            }
        }
    }
}

impl http_body::Body for Streaming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        if self.over {
            return Poll::Ready(None);
        }
        match self.poll_data(context) {
            Poll::Ready(Some(Ok(data))) => {
                self.came(data.len());
                if self.incoming.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Poll::Ready(Some(Err(error))) => self.fail(format!("the body broke off: {error}")),
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Pending if self.stalled(context) => self.fail("the body did not come in time".into()),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

//! One gateway process: whether it runs, is paused, or is dead.
//!
//! Neighbours: each port of a process waits here before it does anything and before it returns, so a paused process wakes in the middle of
//! whatever it did, with its clock run on, and a dead one never wakes. What it had put on the wire goes on without it. It must not know
//! what a process does.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::points::Point;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Paused,
    Dead,
}

/// A process. Cheap to clone; clones are the same process. It runs at first.
#[derive(Clone, Debug)]
pub struct Process {
    life: Arc<Mutex<Life>>,
    /// Wakes whoever waits for another life, in the order in which they began to: a `watch` would wake them at random.
    changed: Arc<Notify>,
    slept: Arc<Mutex<Slept>>,
    /// The statements after the first of which it dies.
    dies_at: Arc<Mutex<Vec<Point>>>,
}

/// How long a process has been paused, by the world's time.
#[derive(Clone, Copy, Debug, Default)]
struct Slept {
    before: Duration,
    since: Option<Instant>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            life: Arc::new(Mutex::new(Life::Running)),
            changed: Arc::default(),
            slept: Arc::default(),
            dies_at: Arc::default(),
        }
    }
}

impl Process {
    /// Stops its tasks wherever they next wait, until it is resumed. Its clocks run on, and calls to it wait.
    pub fn pause(&self) {
        self.change(Life::Paused);
    }

    /// Lets its tasks run on.
    pub fn resume(&self) {
        self.change(Life::Running);
    }

    /// Ends it: no task of it ever runs on, calls to it break, and new ones are refused. It cannot be resumed.
    pub fn kill(&self) {
        self.change(Life::Dead);
    }

    /// Lets it die right after the next statement of one of these kinds took effect.
    pub fn dies_at(&self, points: &[Point]) {
        *self.dies_at.lock().unwrap_or_else(PoisonError::into_inner) = points.to_vec();
    }

    /// A statement of this kind took effect.
    pub(crate) fn passed(&self, point: Point) {
        if self.dies_at.lock().unwrap_or_else(PoisonError::into_inner).contains(&point) {
            self.kill();
        }
    }

    /// For how long it was paused so far: what a clock does not count that stands still meanwhile.
    pub(crate) fn slept(&self) -> Duration {
        let slept = self.slept.lock().unwrap_or_else(PoisonError::into_inner);
        slept.before + slept.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.is(Life::Dead)
    }

    fn is(&self, wanted: Life) -> bool {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) == wanted
    }

    /// Waits until it runs: at once if it does, for ever if it is dead.
    pub async fn runs(&self) {
        self.becomes(Life::Running).await;
    }

    /// Waits until it is dead.
    pub async fn died(&self) {
        self.becomes(Life::Dead).await;
    }

    /// Does this while the process lives: `None` if it dies before it is done.
    pub async fn while_alive<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut died = pin!(self.died());
        let mut work = pin!(work);
        poll_fn(move |context| {
            if died.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    async fn becomes(&self, wanted: Life) {
        while !self.is(wanted) {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.is(wanted) {
                changed.await;
            }
        }
    }

    fn change(&self, to: Life) {
        {
            let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
            if *life == Life::Dead || *life == to {
                return;
            }
            let mut slept = self.slept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(since) = slept.since.take() {
                slept.before += since.elapsed();
            }
            slept.since = (to == Life::Paused).then(Instant::now);
            *life = to;
        }
        self.changed.notify_waiters();
    }
}

//! One gateway process, which runs, is paused or is dead.
//!
//! Each port of a process waits here before it acts and before it returns. So a paused process
//! wakes in the middle of its work, with its clock run on, and a dead one never wakes. Messages
//! that it had sent go on without it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use onceway::protocol::named;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Locks a mutex, also after a task that panicked with it.
pub(crate) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

// A process may die after each of these: the statement took effect, but there is no answer yet.
// docs/simulation.md lists their sequences in upkeep, and the effect of a crash there.
named! {
    "A kind of statement that a gateway makes beside requests, or that ends an attempt."
    Point
    StandIn "stand-in" "A record in the place of another region's attempt."
    Rule "rule" "An operator's act on an attempt."
    Doubt "doubt" "An attempt is in doubt."
    Settle "settle" "An answer is stored."
    Release "release" "An attempt is released."
    List "list" "Keys are put on the list of doubts, or taken off."
    Take "take" "Jobs are taken."
    Job "job" "A job is done, put off, or a dead letter."
    Reap "reap" "A batch of rows, claims that were lodged, imports or requests is reaped."
    Convert "convert" "Claims that were lodged become records."
    Void "void" "A claim that was lodged is taken back, or gets its answer."
    Import "import" "A page of another region's rows is stored."
    Remember "remember" "What is remembered of peers."
    Gate "gate" "The gate, or the boot that it approves."
    Views "views" "Chosen views."
    Acceptor "acceptor" "A promise, a grant or an accepted view."
    Journal "journal" "An entry of the journal, or a look of the audit."
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Running,
    Paused,
    Dead,
}

/// A process. Cheap to clone; clones are the same process. It runs at first.
#[derive(Clone, Debug, Default)]
pub struct Process {
    life: Arc<Mutex<Life>>,
    /// Wakes tasks that wait for another life, in order: a `watch` would wake them at random.
    changed: Arc<Notify>,
    slept: Arc<Mutex<Slept>>,
    /// The process dies after the first of these statements.
    dies_at: Arc<Mutex<Vec<Point>>>,
    /// The task that sends one of these statements panics.
    panics_at: Arc<Mutex<Vec<Point>>>,
}

/// The time for which a process has been paused, by the world's time.
#[derive(Clone, Copy, Debug, Default)]
struct Slept {
    before: Duration,
    since: Option<Instant>,
}

impl Process {
    /// Stops the process's tasks at their next wait. Its clocks run on, and calls to it wait.
    pub fn pause(&self) {
        self.change(Life::Paused);
    }

    pub fn resume(&self) {
        self.change(Life::Running);
    }

    /// Ends the process for good: its tasks stop, calls to it break, and new ones are refused.
    pub fn kill(&self) {
        self.change(Life::Dead);
    }

    /// Lets the process die right after the next statement of one of these kinds took effect.
    pub fn dies_at(&self, points: &[Point]) {
        *locked(&self.dies_at) = points.to_vec();
    }

    /// Lets a task panic right after its next statement of one of these kinds took effect.
    pub fn panics_at(&self, points: &[Point]) {
        *locked(&self.panics_at) = points.to_vec();
    }

    /// Notes that a statement of this kind took effect. Panics if a task is to panic there.
    pub(crate) fn passed(&self, point: Point) {
        let panics = locked(&self.panics_at).contains(&point);
        assert!(!panics, "a task panics at {}, as it was told", point.name());
        if locked(&self.dies_at).contains(&point) {
            self.kill();
        }
    }

    /// The time for which the process was paused so far: a clock that stands still leaves it out.
    pub(crate) fn slept(&self) -> Duration {
        let slept = locked(&self.slept);
        slept.before + slept.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub fn is_dead(&self) -> bool {
        self.is(Life::Dead)
    }

    fn is(&self, wanted: Life) -> bool {
        *locked(&self.life) == wanted
    }

    /// Waits until the process runs: at once if it does, for ever if it is dead.
    pub async fn runs(&self) {
        self.becomes(Life::Running).await;
    }

    pub async fn died(&self) {
        self.becomes(Life::Dead).await;
    }

    /// Works while the process lives: `None` if it dies before the work is done.
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
            let mut life = locked(&self.life);
            if *life == Life::Dead || *life == to {
                return;
            }
            let mut slept = locked(&self.slept);
            if let Some(since) = slept.since.take() {
                slept.before += since.elapsed();
            }
            slept.since = (to == Life::Paused).then(Instant::now);
            *life = to;
        }
        self.changed.notify_waiters();
    }
}

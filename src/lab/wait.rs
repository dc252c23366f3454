//! Waits, in one place: for a condition with a deadline, or for a moment that a caller asked for.
//! `tests/suites/tidy.rs` lets no other file of the fleet sleep. Callers name their conditions, and
//! an error repeats the name.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, sleep_until, timeout};

/// Time between two attempts that ask another process, over a socket or in its log.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// Time between two looks at `/proc` or the file system: a fork or an exit is short.
const BETWEEN_LOOKS: Duration = Duration::from_millis(3);

/// Tries every 20 ms until `attempt` returns a value; returns at once if the first attempt does.
/// `what` reads as "for `what`" in the error (`"the gateway to listen"`). An attempt's error ends
/// the wait and is returned. After `bound`, a running attempt is cancelled and the wait is an
/// error.
pub async fn for_some<T, F>(what: &str, bound: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    // A named future instead of `AsyncFnMut`: only so the compiler knows that the whole wait is
    // `Send`, for waits inside tasks.
    F: Future<Output = Result<Option<T>>>,
{
    let attempts = async {
        loop {
            if let Some(given) = attempt().await? {
                return Ok(given);
            }
            sleep(BETWEEN_ATTEMPTS).await;
        }
    };
    timeout(bound, attempts).await.unwrap_or_else(|_elapsed| Err(in_vain(what, bound)))
}

/// Looks every 3 ms until `condition` holds; looks at least once, and returns at once if it holds.
/// Blocks its thread at most `bound`, plus one look. Then it is an error that names `what`, as in
/// [`for_some`].
pub fn blocking_until(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > bound {
            bail!(in_vain(what, bound));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

fn in_vain(what: &str, bound: Duration) -> anyhow::Error {
    anyhow!("waited {bound:?} in vain for {what}")
}

/// Pauses because a caller ordered it (a slow answer of the sample upstream). It never replaces a
/// wait for a condition.
pub async fn pause(length: Duration) {
    sleep(length).await;
}

/// Waits until bytes on a slow wire are due; returns at once if they are.
pub async fn pause_until(due: tokio::time::Instant) {
    // A timer rounds up to the millisecond: it must not delay bytes that are due.
    if due > tokio::time::Instant::now() {
        sleep_until(due).await;
    }
}

/// The signals by which a user ends a command: SIGINT and SIGTERM.
pub struct Leave([Signal; 2]);

impl Leave {
    pub fn heard() -> Result<Leave> {
        Ok(Leave([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    pub async fn asked(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    /// Runs in a task, as supervisors do: the future must be `Send`, whatever it borrows.
    #[tokio::test]
    async fn a_wait_returns_the_value_of_its_attempt() {
        let waiting = async {
            let count = AtomicU32::new(0);
            let counted = async || {
                tokio::task::yield_now().await;
                Ok((count.fetch_add(1, Relaxed) == 2).then_some("there"))
            };
            (for_some("the third attempt", BOUND, counted).await.unwrap(), count.load(Relaxed))
        };
        assert_eq!(tokio::spawn(waiting).await.unwrap(), ("there", 3));
    }

    #[tokio::test]
    async fn an_error_ends_the_wait_at_once() {
        let count = AtomicU32::new(0);
        let failing = async || -> Result<Option<()>> {
            count.fetch_add(1, Relaxed);
            bail!("it is over")
        };
        let error = for_some("a miracle", BOUND, failing).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), count.load(Relaxed)), ("it is over", 1));
    }

    #[tokio::test]
    async fn the_bound_ends_a_wait_and_an_attempt_that_hangs() {
        let bound = Duration::from_millis(1);
        let never = for_some("a ship", bound, async || Ok(None::<()>)).await;
        assert_eq!(never.unwrap_err().to_string(), "waited 1ms in vain for a ship");
        let hanging = for_some("a word", bound, std::future::pending::<Result<Option<()>>>);
        let error = timeout(BOUND, hanging).await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "waited 1ms in vain for a word");
    }

    #[test]
    fn a_blocking_wait_looks_at_least_once_and_not_for_ever() {
        for (wanted, bound) in [(1, Duration::ZERO), (3, BOUND)] {
            let mut looks = 0;
            let counted = || {
                looks += 1;
                looks == wanted
            };
            blocking_until("a look", bound, counted).unwrap();
            assert_eq!(looks, wanted);
        }
        let error = blocking_until("nothing", Duration::from_millis(1), || false).unwrap_err();
        assert_eq!(error.to_string(), "waited 1ms in vain for nothing");
    }

    #[tokio::test]
    async fn a_pause_is_never_too_short() {
        let start = tokio::time::Instant::now();
        pause(Duration::from_millis(10)).await;
        assert!(start.elapsed() >= Duration::from_millis(10));
        let due = tokio::time::Instant::now() + Duration::from_millis(10);
        pause_until(due).await;
        assert!(tokio::time::Instant::now() >= due);
        pause_until(start).await;
    }
}

//! When files that a process was configured by are read again: on SIGHUP, and when one of them is another than it was.
//!
//! Neighbours: [`super::reload`] for gateways, [`super::witness_reload`] for witnesses; `config` says which files were looked at. The files are
//! looked at through links, so that a folder that is exchanged whole (as Kubernetes does) is seen, too. It must not judge what the files say.

use std::time::Duration;

use tokio::signal::unix::Signal;

use crate::config::Watched;

/// Between two looks at the files.
const EVERY: Duration = Duration::from_secs(2);
/// How long files must have stayed as they are before they are read: whoever writes several of them, or a long one, is let finish.
const SETTLED: Duration = Duration::from_millis(200);
/// How often that is waited for at most.
const MOST_WAITS: usize = 25;

/// Waits until it is time for a look. Whether somebody asked for one.
pub(super) async fn asked(hangup: &mut Signal) -> bool {
    tokio::select! {
        biased;
        got = hangup.recv() => got.is_some(),
        () = tokio::time::sleep(EVERY) => false,
    }
}

/// Reads the files if they were changed, or if it was `asked` to: what was read, if it was, and what the files were then. `None` if reading
/// panicked.
pub(super) async fn look<T: Send + 'static>(
    watched: Watched,
    asked: bool,
    read: impl FnOnce() -> (T, Watched) + Send + 'static,
) -> Option<(Watched, Option<T>)> {
    let seen = watched.clone();
    if !asked && !tokio::task::spawn_blocking(move || seen.has_changed()).await.ok()? {
        return Some((watched, None));
    }
    for _ in 0..MOST_WAITS {
        let seen = watched.clone();
        let before = tokio::task::spawn_blocking(move || seen.again()).await.ok()?;
        tokio::time::sleep(SETTLED).await;
        if !tokio::task::spawn_blocking(move || before.has_changed()).await.ok()? {
            break;
        }
    }
    let (read, watched) = tokio::task::spawn_blocking(read).await.ok()?;
    Some((watched, Some(read)))
}

/// Says why nothing that was read counts.
pub(super) fn not_taken(problems: &[String]) {
    for problem in problems {
        tracing::error!(problem, "the configuration is not taken over; everything goes on as before");
    }
}

/// Says that what was read counts, but for these keys.
pub(super) fn taken(restart: &[String]) {
    for key in restart {
        tracing::warn!(key, "needs a restart: what runs keeps its value");
    }
    tracing::info!(waiting = restart.len(), "the configuration was read again");
}

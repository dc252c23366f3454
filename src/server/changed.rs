//! Reading of configuration files again: on SIGHUP, and when one of them changed.
//!
//! [`super::reload`] does it for gateways, [`super::witness`] for witnesses. Files are looked at
//! through links, so the exchange of a whole folder (as Kubernetes does it) is noticed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::Signal;

use crate::config::{Errors, Watched};

/// Time between two looks at the files.
const EVERY: Duration = Duration::from_secs(2);
/// Time without a change before the files are read: their writer gets to finish.
const SETTLED: Duration = Duration::from_millis(200);
/// Most waits of that time.
const MOST_WAITS: usize = 25;

/// Place of a gateway's or witness's configuration, and state of its files when they were read.
#[derive(Clone, Debug)]
pub struct Files {
    /// The region file, or the witness file.
    pub file: PathBuf,
    /// That file, and all files that it names.
    pub watched: Watched,
}

/// Waits until the files were read again. `load` reads the configuration, and `further` the files
/// that it names. `None` if they are not watched any more.
pub(super) async fn next<C: Send + 'static, T: Send + 'static>(
    files: &mut Files,
    hangup: &mut Signal,
    load: fn(&Path) -> (Result<C, Errors>, Watched),
    further: fn(&C) -> anyhow::Result<T>,
) -> Option<Result<(C, T), Vec<String>>> {
    loop {
        let Files { file, watched } = files.clone();
        let read = move || {
            let (config, watched) = load(&file);
            let config = config.map_err(|errors| errors.0.iter().map(ToString::to_string).collect());
            let further = |config: C| match further(&config) {
                Ok(read) => Ok((config, read)),
                Err(error) => Err(vec![format!("{error:#}")]),
            };
            (config.and_then(further), watched)
        };
        // True if a signal asked for the next look before it is due.
        let asked = tokio::select! {
            biased;
            got = hangup.recv() => got.is_some(),
            () = tokio::time::sleep(EVERY) => false,
        };
        let Some((seen, read)) = look(watched, asked, read).await else {
            tracing::error!("the configuration is not watched any more: restart to have it read again");
            return None;
        };
        files.watched = seen;
        if let Some(Err(problems)) = &read {
            for problem in problems {
                tracing::error!(problem, "the configuration is not taken over; everything goes on as before");
            }
        }
        if read.is_some() {
            return read;
        }
    }
}

/// Reads the files if they changed, or if `asked` is set. `None` if reading panicked.
async fn look<T: Send + 'static>(
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

/// Logs that the files are taken over, except for the keys in `restart`.
pub(super) fn taken(restart: &[String]) {
    for key in restart {
        tracing::warn!(key, "needs a restart: what runs keeps its value");
    }
    tracing::info!(waiting = restart.len(), "the configuration was read again");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::{Instant, interval};

    use super::*;
    use crate::config::Config;

    /// Writes a region file and notes its state. Its content need not be valid here.
    fn file(folder: &Path) -> (PathBuf, Watched) {
        let file = folder.join("region.toml");
        fs::write(&file, "").unwrap();
        let (_, watched) = Config::load_watched(&file);
        (file, watched)
    }

    /// Adds a line, `times` times, after a pause each time.
    async fn write(file: &Path, times: usize, pause: Duration) {
        let mut clock = interval(pause);
        clock.tick().await;
        for lines in 1..=times {
            clock.tick().await;
            fs::write(file, "#\n".repeat(lines + 1)).unwrap();
        }
    }

    fn read(file: &Path) -> impl FnOnce() -> (usize, Watched) + Send + 'static {
        let file = file.to_owned();
        move || (fs::read_to_string(&file).unwrap().lines().count(), Config::load_watched(&file).1)
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_once_its_writing_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (file, watched) = file(folder.path());
        fs::write(&file, "#\n").unwrap();
        let written = write(&file, 6, SETTLED * 3 / 4);
        let (looked, ()) = tokio::join!(look(watched, false, read(&file)), written);
        assert_eq!(looked.unwrap().1, Some(7), "lines, once nobody writes any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_under_endless_writing_is_still_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, watched) = file(folder.path());
        fs::write(&file, "#\n").unwrap();
        let begun = Instant::now();
        tokio::select! {
            biased;
            looked = look(watched, false, read(&file)) => assert!(looked.unwrap().1.is_some()),
            () = write(&file, 1_000, SETTLED * 3 / 4) => panic!("it was never read"),
        }
        assert!(begun.elapsed() >= SETTLED * 10, "it was waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unchanged_file_is_read_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let (file, watched) = file(folder.path());
        let (watched, looked) = look(watched, false, read(&file)).await.unwrap();
        assert_eq!(looked, None);
        assert_eq!(look(watched, true, read(&file)).await.unwrap().1, Some(0));
    }
}

//! Logs: to stderr, as text or as JSON, chosen by `ONCEWAY_LOG` or the configuration.
//!
//! Neighbours: commands that run for long set it up once, before anything else. What is logged is the other rooms' business; keys
//! and tokens never are. It must not write to stdout: that is for answers.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

use super::Failure;
use crate::config::region::LogFormat;
use crate::server::reload::Levels;

/// The variable that chooses what is logged.
const VARIABLE: &str = "ONCEWAY_LOG";

/// Sets logging up for this process; what it returns says what is logged from then on, unless `ONCEWAY_LOG` does.
///
/// # Errors
/// `ONCEWAY_LOG` cannot be read, or logging is set up already.
pub fn set_up(format: LogFormat, level: &str) -> Result<Levels, Failure> {
    let chosen = std::env::var(VARIABLE).ok().filter(|chosen| !chosen.trim().is_empty());
    let wanted = chosen.as_deref().unwrap_or(level);
    let filter = EnvFilter::try_new(wanted).map_err(|error| {
        Failure::Bad(format!("{VARIABLE}={wanted:?}: {error}; write a level such as info, or onceway=debug"))
    })?;
    let base = tracing_subscriber::fmt().with_writer(std::io::stderr);
    let is_chosen = chosen.is_some();
    match format {
        LogFormat::Text => {
            let base = base.with_ansi(std::io::stderr().is_terminal());
            let base = base.with_env_filter(filter).with_filter_reloading();
            let levels = levels(is_chosen, base.reload_handle());
            base.try_init().map(|()| levels)
        }
        LogFormat::Json => {
            let base = base.json().flatten_event(true).with_env_filter(filter).with_filter_reloading();
            let levels = levels(is_chosen, base.reload_handle());
            base.try_init().map(|()| levels)
        }
    }
    .map_err(|error| Failure::Failed(format!("cannot set logging up: {error}")))
}

fn levels<S: Send + Sync + 'static>(is_chosen: bool, handle: Handle<EnvFilter, S>) -> Levels {
    Box::new(move |level| {
        if is_chosen {
            return Ok(());
        }
        let filter = EnvFilter::try_new(level).map_err(|error| error.to_string())?;
        handle.reload(filter).map_err(|error| error.to_string())
    })
}

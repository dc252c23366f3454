//! Logs: to stderr, as text or as JSON, chosen by `ONCEWAY_LOG`.
//!
//! Neighbours: commands that run for long set it up once, before anything else. What is logged is the other rooms' business; keys
//! and tokens never are. It must not write to stdout: that is for answers.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::Failure;
use crate::config::region::LogFormat;

/// The variable that chooses what is logged.
const VARIABLE: &str = "ONCEWAY_LOG";

/// Sets logging up for this process.
///
/// # Errors
/// `ONCEWAY_LOG` cannot be read, or logging is set up already.
pub fn set_up(format: LogFormat) -> Result<(), Failure> {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let wanted = if wanted.trim().is_empty() { "info".to_owned() } else { wanted };
    let filter = EnvFilter::try_new(&wanted).map_err(|error| {
        Failure::Bad(format!("{VARIABLE}={wanted:?}: {error}; write a level such as info, or onceway=debug"))
    })?;
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match format {
        LogFormat::Text => base.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => base.json().flatten_event(true).try_init(),
    };
    set.map_err(|error| Failure::Failed(format!("cannot set logging up: {error}")))
}

//! Logs: to stderr, as text or as JSON, chosen by `ONCEWAY_LOG` or the configuration.
//!
//! Commands that run for long set logging up once, before anything else.

use std::fmt::Display;
use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::process::Failure;
use super::stderr::Lines;
use crate::config::region::LogFormat;
use crate::config::values::log_filter;
use crate::server::reload::Levels;

/// The variable with the filter of the log.
const VARIABLE: &str = "ONCEWAY_LOG";

/// Another layer beside the log, with a filter of its own.
type Beside = Box<dyn Layer<Registry> + Send + Sync>;

/// Sets logging up for this process, and `beside` with it. The returned [`Levels`] change the
/// filter later, unless `ONCEWAY_LOG` is set. Hold the returned [`Lines`] to the end, when the last
/// lines are written. The error: `ONCEWAY_LOG` cannot be read, or logging is set up already.
pub fn set_up(format: LogFormat, level: &str, beside: Option<Beside>) -> Result<(Levels, Lines), Failure> {
    let chosen = std::env::var(VARIABLE).ok().filter(|chosen| !chosen.trim().is_empty());
    let wanted = chosen.as_deref().unwrap_or(level);
    // The reader of the file has checked the file's level already.
    let filter = log_filter(wanted).map_err(|why| Failure::Bad(format!("{VARIABLE}: {why}")))?;
    let (filter, handle) = reload::Layer::new(filter);
    let failed = |error: &dyn Display| Failure::Failed(format!("cannot set logging up: {error}"));
    let written = Lines::to_stderr().map_err(|error| failed(&error))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(written.writer());
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let layers: Vec<Beside> = beside.into_iter().chain([lines]).collect();
    let set_up = tracing_subscriber::registry().with(layers).try_init();
    set_up.map_err(|error| failed(&error))?;
    Ok((levels(chosen.is_some(), handle), written))
}

fn levels<S: Send + Sync + 'static>(is_chosen: bool, handle: Handle<EnvFilter, S>) -> Levels {
    Box::new(move |level| {
        if is_chosen {
            return Ok(());
        }
        let filter = log_filter(level)?;
        handle.reload(filter).map_err(|error| error.to_string())
    })
}

//! `onceway serve`: one gateway process of one region. `server::run` serves.

use std::path::PathBuf;

use clap::Args;

use super::process::{Failure, block_on};
use super::protocol::Speech;
use super::{logging, store};
use crate::config::Config;
use crate::config::region::NO_OTLP;
use crate::server::changed::Files;
use crate::server::run::{self, LoopDied};

/// Run one gateway of one region, until SIGTERM or SIGINT.
///
/// Reads the region file and the files it names, checks everything, and only then listens. On
/// SIGTERM or SIGINT it refuses new keyed requests, lets running ones finish (at most `drain`), and
/// ends with 0.
///
/// On SIGHUP, and within seconds of a change, it reads the files again: routes, credentials,
/// quotas, limits, certificates and the log's level are replaced at once, and no request is
/// dropped. Files that are wrong change nothing; `onceway status` says so, and names the settings
/// that need a restart.
///
/// For people: /console on the admin listener ([listen] admin, such as
/// http://127.0.0.1:7402/console).
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway serve --config config/us-east.toml
  ONCEWAY_LOG=onceway=debug onceway serve --config config/us-east.toml

Before the first start: `onceway check FILE`. With --init it makes the store as `onceway store init` does; without [provision] in
the file the role of [store] makes it, in a database of its own. A ring of several regions is founded by `onceway init`.

It raises its soft limit of open files to the hard one, and warns where [listen.limits] can need more.

Exit codes: 0 stopped as asked; 1 could not start, or failed; 2 wrong arguments or configuration; 4 a loop of the gateway died, so
it gave its lease up and left: start it again.")]
pub struct Serve {
    /// The region file.
    #[arg(long, env = "ONCEWAY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Make the store first, and found the register if the ring has this region alone. For the
    /// first start only: a store that was emptied would be founded anew, without its keys.
    #[arg(long)]
    init: bool,
    #[command(flatten)]
    speech: Speech,
}

impl Serve {
    pub fn run(&self) -> Result<(), Failure> {
        let (config, watched) = Config::load_watched(&self.config);
        let config = config?;
        let (log, otlp) = (&config.process.log, config.process.otlp.as_ref());
        #[cfg(feature = "otlp")]
        let (layer, exporter) = otlp
            .map(|otlp| crate::adapters::otlp::set_up(&otlp.endpoint, otlp.sample_percent, &config.me))
            .unzip();
        #[cfg(not(feature = "otlp"))]
        let layer = None;
        let (levels, _lines) = logging::set_up(log.format, &log.level, layer)?;
        if otlp.is_some() && !cfg!(feature = "otlp") {
            tracing::warn!("{NO_OTLP}");
        }
        let files = Files { file: self.config.clone(), watched };
        block_on(async {
            #[cfg(feature = "otlp")]
            let exporting = exporter.map(crate::adapters::otlp::Exporter::start);
            if self.init {
                store::make(&self.config, &config).await?;
            }
            let ended = run::run(config, files, levels, self.init, self.speech.versions()).await;
            #[cfg(feature = "otlp")]
            if let Some(exporting) = exporting {
                exporting.stop().await;
            }
            ended.map_err(|error| match error.downcast::<LoopDied>() {
                Ok(died) => Failure::Died(died.to_string()),
                Err(error) => error.into(),
            })
        })
    }
}

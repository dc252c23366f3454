//! `onceway serve`: one gateway process of one region. `onceway witness`: a voter without a store.
//!
//! `server::run` and `server::witness` serve.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::process::{Failure, block_on, tell};
use super::protocol::Speech;
use super::{stderr, store};
use crate::adapters::system::SystemDice;
use crate::adapters::witness::{AcceptorFile, FileError};
use crate::config::Config;
use crate::config::region::NO_OTLP;
use crate::config::witness::WitnessConfig;
use crate::ports::Dice;
use crate::protocol::view::AcceptorId;
use crate::server::changed::Files;
use crate::server::run::{self, LoopDied};
use crate::server::witness;

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
        let (levels, _lines) = stderr::set_up(log.format, &log.level, layer)?;
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

/// Run a witness: a third voter for deployments of two regions, until SIGTERM or SIGINT.
///
/// Two regions cannot fail over by themselves: the one that is left cannot tell a dead neighbour
/// from a cut link. A witness is one more vote, in a third place. It keeps one small file with its
/// promises, has no store, and sees no keys and no requests.
///
/// It needs its file: a witness that forgot its promises could let both regions run the same keys,
/// so it never starts with a missing or damaged one. Give each witness a disk of its own, and never
/// run two processes on copies of it. If the file was put back from a copy, or the machine was
/// started anew, the witness is a new voter: its file may not be the last one that it wrote. A new
/// voter is silent until the regions have taken it in. They do that by themselves within seconds,
/// if both of them are up.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway witness --config config/witness.toml --init    once: make its file, and end
  onceway witness --config config/witness.toml           run it
  curl http://127.0.0.1:7402/v1/status                   which view did it accept, who holds a lease?

The order for a new deployment: list it in ring.toml ([[witness]]) and in every region file ([peer.addresses]); make its
certificate (`onceway certs --witness NAME`); --init; run it and the gateways; `onceway init`.

On SIGHUP, and when one of its files was changed, it reads them again: certificates, the admin token and the log's level are replaced, all or
none; its status says what is wrong, or waits for a restart.

If the file is lost: --init again, with another file or in its place. The new witness has another id, is silent for one
lease, and votes once the regions have taken it in as a voter, which they do by themselves.

Exit codes: 0 stopped as asked, or the file was made; 1 could not start, or failed; 2 wrong arguments or configuration, or the
file is missing, damaged, in use, or (with --init) there already.")]
pub struct Witness {
    /// The witness file, such as config/witness.toml.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    speech: Speech,
    /// Make the file of a new witness, and end. Refused if it exists already.
    #[arg(long)]
    init: bool,
    /// With --init: show the file that would be made, and make nothing. Ends with 2 if the file
    /// exists already, or its folder does not.
    #[arg(long, requires = "init")]
    dry_run: bool,
    /// With --init: print JSON: file, name, acceptor.
    #[arg(long, requires = "init")]
    json: bool,
}

impl Witness {
    pub fn run(&self) -> Result<(), Failure> {
        let (config, watched) = WitnessConfig::load_watched(&self.config);
        let config = config?;
        let bad = |error: FileError| Failure::Bad(error.to_string());
        if self.dry_run {
            return self.rehearse(&config);
        }
        if self.init {
            let id = AcceptorId(SystemDice.nonce().0);
            AcceptorFile::create(&config.file, &config.name, id).map_err(bad)?;
            let acceptor = format!("{:032x}", id.0);
            let said = json!({ "file": config.file, "name": config.name.as_str(), "acceptor": acceptor });
            let text = format!("{}: made for {}, acceptor {acceptor}\n", config.file.display(), config.name);
            return tell(self.json, &said, &text);
        }
        let (levels, _lines) = stderr::set_up(config.log.format, &config.log.level, None)?;
        let anew = AcceptorId(SystemDice.nonce().0);
        let opened = AcceptorFile::open(&config.file, &config.name, anew).map_err(bad)?;
        let files = Files { file: self.config.clone(), watched };
        block_on(witness::run(config, opened, files, levels, self.speech.versions()))
    }

    fn rehearse(&self, config: &WitnessConfig) -> Result<(), Failure> {
        AcceptorFile::vacant(&config.file).map_err(|error| Failure::Bad(error.to_string()))?;
        let said = json!({ "dry_run": true, "file": config.file, "name": config.name.as_str() });
        let shown = config.file.display();
        tell(self.json, &said, &format!("{shown}: would be made for {}\nNothing was changed.\n", config.name))
    }
}

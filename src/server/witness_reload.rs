//! A witness's files read again while it runs: on SIGHUP, and when one of them changed.
//!
//! It replaces certificates, tokens of operators and log levels: all of them, or nothing.
//! Addresses, and the settings on which its promises depend (its name, its file, clocks), need a
//! restart. [`changed`] says when; `config::witness` reads and checks. This file must not touch the
//! witness's promises.

use std::path::PathBuf;

use rustls::ServerConfig;
use tokio::signal::unix::Signal;

use super::certificates::{self, Expiries};
use super::reload::Levels;
use super::replaceable::Replaceable;
use super::{admin_door, changed};
use crate::adapters::identity::PeerIdentity;
use crate::adapters::system::SystemClock;
use crate::config::Watched;
use crate::config::witness::WitnessConfig;
use crate::gateway::credentials::operators::Operators;
use crate::gateway::reloadable::ConfigStatus;
use crate::ports::Clock;

/// Place of a witness's configuration, and state of its files when they were read.
#[derive(Debug)]
pub struct WitnessFiles {
    pub file: PathBuf,
    /// The witness file, and all files that it names.
    pub watched: Watched,
}

pub(super) struct Replaced {
    pub identity: PeerIdentity,
    pub expiries: Replaceable<Expiries>,
    pub operators: Replaceable<Operators>,
    pub admin_tls: Option<Replaceable<ServerConfig>>,
    pub levels: Levels,
    /// Difference between the running witness and its files.
    pub says: Replaceable<ConfigStatus>,
}

/// The witness's certificate, and the authorities of the regions' certificates.
pub(super) fn identity(config: &WitnessConfig) -> anyhow::Result<PeerIdentity> {
    Ok(PeerIdentity::load(config.name.clone(), &config.identity)?)
}

/// Runs as long as it is polled.
pub(super) async fn watch(
    begun: WitnessConfig,
    mut files: WitnessFiles,
    replaced: Replaced,
    mut hangup: Signal,
) {
    let read = move || {
        let (config, watched) = WitnessConfig::load_watched(&files.file);
        let certified = |config: WitnessConfig| {
            let read = identity(&config).and_then(|own| Ok((own, admin_door::tls(&config.operators)?)));
            match read {
                Ok((identity, tls)) => Ok((certificates::look_of_witness(&config), config, identity, tls)),
                Err(error) => Err(vec![format!("{error:#}")]),
            }
        };
        (config.map_err(changed::lines).and_then(certified), watched)
    };
    while let Some(read) = changed::next(&mut files.watched, &mut hangup, read.clone()).await {
        match read {
            Ok((expiries, config, identity, tls)) => {
                replaced.expiries.replace(expiries);
                take(&begun, &config, &identity, tls, &replaced);
            }
            Err(problems) => {
                let before = replaced.says.now();
                let says = ConfigStatus { current: false, problems, ..ConfigStatus::clone(&before) };
                replaced.says.replace(says);
            }
        }
    }
}

fn take(
    begun: &WitnessConfig,
    config: &WitnessConfig,
    identity: &PeerIdentity,
    tls: Option<ServerConfig>,
    replaced: &Replaced,
) {
    let restart = restart(begun, config);
    replaced.identity.renew(identity);
    // Tokens depend on the address: only a loopback address may have none.
    if config.admin == begun.admin {
        replaced.operators.replace(config.operators.operators());
    }
    if let (Some(before), Some(after)) = (&replaced.admin_tls, tls) {
        before.replace(after);
    }
    if let Err(why) = (replaced.levels)(&config.log.level) {
        tracing::error!(why, "what is logged stays as it was");
    }
    changed::taken(&restart);
    let (current, problems) = (restart.is_empty(), Vec::new());
    let loaded_ms = Some(SystemClock.date().as_millis());
    replaced.says.replace(ConfigStatus { current, problems, restart, loaded_ms });
}

/// Changed settings that wait for a restart.
fn restart(begun: &WitnessConfig, config: &WitnessConfig) -> Vec<String> {
    let WitnessConfig { name, file, peer, admin, drift, log, .. } = begun;
    let differs = [
        ("name", *name != config.name),
        ("file", *file != config.file),
        ("listen.peer", *peer != config.peer),
        ("listen.admin", *admin != config.admin),
        ("[admin.tls] as such", begun.operators.tls.is_some() != config.operators.tls.is_some()),
        ("clock", *drift != config.drift),
        ("log.format", log.format != config.log.format),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()).collect()
}

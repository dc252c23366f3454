//! The soak: a deployment with two gateways per region under steady load, and all work of operators
//! over and over. It reloads, replaces certificates, restarts (in order or by SIGKILL) and drains.
//! [`super::meter`] samples, and [`super::soaked`] judges the additional bounds. The first gateway
//! of a region is never restarted: its memory is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::meter::{Meter, counter};
use super::moves::until_done;
use super::run::Run;
use super::soaked::{Counts, Harm, Soaked};
use crate::gateway::{Action, Gateway};
use crate::{files, lock, status, wait};
use onceway_protocol::region::RegionName;

pub const GATEWAYS: [usize; 3] = [2; 3];
/// Rules of failover: the defaults, except the wait before a return. A busy machine must not look
/// like a dead region: other drills cover that.
pub const FAILOVER: &str = r#"
[clock]
drift_ppm = 500
margin = "50ms"

[failover]
lease = "10s"
floor = "1s"
multiple = 2.0
stable_for = "5s"
"#;
const RESTARTED: usize = 1;
const DONE_WITHIN: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(3);
/// Time after a gateway serves again in which a broken connection may still come from its death.
const AFTERMATH: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    reload: Duration,
    rotation: Duration,
    restart: Duration,
    drain: Duration,
    sample: Duration,
    progress: Duration,
}

impl Pace {
    /// A restart each minute and a drain every five; in a short soak, each at least once.
    fn of(length: Duration) -> Pace {
        let every = |seconds: u64, part: u32| match length >= Duration::from_secs(600) {
            true => Duration::from_secs(seconds),
            false => length / part,
        };
        Pace {
            reload: every(20, 8),
            rotation: every(90, 4),
            restart: every(60, 6),
            drain: every(300, 2),
            sample: every(5, 60).max(Duration::from_millis(500)),
            progress: every(60, 4),
        }
    }
}

struct Soak<'a, 'b> {
    run: &'a Run<'b>,
    pace: Pace,
    end: Instant,
    counts: Mutex<Counts>,
    harms: Mutex<Vec<Harm>>,
    /// The gateway that is being restarted: region and number.
    away: watch::Sender<Option<(usize, usize)>>,
}

/// Runs for as long as the settings say, and leaves its measurements even if an action failed.
pub async fn soak(run: &mut Run<'_>, left: &mut Option<Soaked>) -> Result<()> {
    let length = run.settings.soak;
    let begun = Instant::now();
    // Connections to a region break when one of its gateways dies. The end judges the moments, more
    // sharply than by region.
    run.allowed.harmed = (0..run.deployment.regions.len()).collect();
    let soak = Soak {
        run,
        pace: Pace::of(length),
        end: begun + length,
        counts: Mutex::default(),
        harms: Mutex::default(),
        away: watch::Sender::new(None),
    };
    let mut meter = Meter::default();
    let worked = async { tokio::join!(soak.files(begun), soak.moves(begun)) };
    let (filed, moved) = tokio::select! {
        biased;
        worked = worked => worked,
        never = soak.measure(begun, &mut meter) => match never {},
    };
    let (counts, harms) = (*lock(&soak.counts), lock(&soak.harms).clone());
    *left = Some(Soaked { meter, harms, counts, begun, ended: Instant::now() });
    filed.context("files that change")?;
    moved.context("restarts and drains")
}

impl Soak<'_, '_> {
    /// Waits until the moment or the end; true if the action is still due. A late action on a busy
    /// machine is not made up for.
    async fn comes(&self, due: Instant) -> bool {
        wait::pause_until(due.min(self.end)).await;
        due < self.end && Instant::now() < self.end
    }

    /// Every gateway that runs and is not being restarted.
    fn steady(&self) -> Vec<(usize, &Arc<Gateway>)> {
        let away = *self.away.borrow();
        let regions = self.run.deployment.regions.iter().enumerate();
        let all = regions.flat_map(|(number, region)| {
            region.gateways.iter().enumerate().map(move |(own, gateway)| ((number, own), gateway))
        });
        all.filter(|(place, _)| Some(*place) != away)
            .map(|((region, _), gateway)| (region, gateway))
            .collect()
    }

    async fn files(&self, begun: Instant) -> Result<()> {
        let dir = self.run.deployment.dir();
        let usual = std::fs::read_to_string(dir.join("routes.toml")).context("the routes")?;
        let other = usual.replace("wait = \"3s\"", "wait = \"2s\"\nbody_limit = \"512KiB\"");
        ensure!(usual != other, "the demo's routes have another wait");
        let (mut reload, mut rotation) = (begun + self.pace.reload, begun + self.pace.rotation / 2);
        while self.comes(reload.min(rotation)).await {
            if rotation <= reload {
                rotation += self.pace.rotation;
                self.rotate(dir).await?;
                lock(&self.counts).rotations += 1;
            } else {
                reload += self.pace.reload;
                let odd = lock(&self.counts).reloads.is_multiple_of(2);
                self.reload(dir, if odd { &other } else { &usual }).await?;
                lock(&self.counts).reloads += 1;
            }
        }
        self.reload(dir, &usual).await
    }

    /// Writes new routes, and returns when every steady gateway uses them.
    async fn reload(&self, dir: &Path, routes: &str) -> Result<()> {
        self.run.note("routes.toml changed, SIGHUP");
        let mut before = BTreeMap::new();
        for (_, gateway) in self.steady() {
            before.insert(gateway.ports.admin, reloads(gateway).await);
        }
        files::replace(dir, "routes.toml", routes)?;
        self.steady().into_iter().filter(|(_, one)| before.contains_key(&one.ports.admin)).for_each(hang_up);
        let read = async || {
            let mut shared = BTreeSet::new();
            for (_, gateway) in self.steady() {
                let status = status(&gateway.admin(), PATIENCE).await;
                let counted = before.get(&gateway.ports.admin).copied().flatten();
                let again =
                    reloads(gateway).await.is_some_and(|now| counted.is_none_or(|before| now != before));
                if status["config"]["current"] != true || !again {
                    return Ok(None);
                }
                shared.insert(status["shared"].to_string());
            }
            Ok((shared.len() <= 1).then_some(()))
        };
        wait::for_some("every gateway to have read the routes", DONE_WITHIN, read).await
    }

    /// Makes new certificates for all regions, until every steady gateway shows the new one.
    async fn rotate(&self, dir: &Path) -> Result<()> {
        self.run.note("certificates replaced, SIGHUP");
        let names: Vec<RegionName> =
            self.run.deployment.regions.iter().map(|region| region.name.clone()).collect();
        files::rotate(self.run.deployment.regions[0].program(), dir, &names)?;
        self.steady().into_iter().for_each(hang_up);
        let shown = async || {
            for (region, gateway) in self.steady() {
                if !shows_its_file(dir, &names[region], gateway.ports.peer).await.unwrap_or(false) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        };
        wait::for_some("every gateway to show its new certificate", DONE_WITHIN, shown).await
    }

    async fn moves(&self, begun: Instant) -> Result<()> {
        let (mut restart, mut drain) = (begun + self.pace.restart / 2, begun + self.pace.drain / 2);
        while self.comes(restart.min(drain)).await {
            if drain <= restart {
                drain += self.pace.drain;
                self.drain().await?;
                lock(&self.counts).drains += 1;
            } else {
                restart += self.pace.restart;
                self.restart().await?;
            }
        }
        Ok(())
    }

    /// Restarts the second gateway of the next region: with an orderly stop and a SIGKILL in turn.
    async fn restart(&self) -> Result<()> {
        let Counts { stops, kills, .. } = *lock(&self.counts);
        let region = usize::try_from(stops + kills)? % self.run.deployment.regions.len();
        let action = if stops <= kills { Action::Stop } else { Action::Kill };
        let (name, here) = (self.run.name(region), self.run.region(region));
        self.run.note(format!("{action:?} gateway {} of {name}", RESTARTED + 1));
        let from = Instant::now();
        self.away.send_replace(Some((region, RESTARTED)));
        here.act_on(RESTARTED, action).await?;
        here.act_on(RESTARTED, Action::Start).await?;
        here.serves().await?;
        self.away.send_replace(None);
        wait::pause(AFTERMATH).await;
        lock(&self.harms).push(Harm { region, from, to: Instant::now() });
        let mut counts = lock(&self.counts);
        match action {
            Action::Stop => counts.stops += 1,
            Action::Kill | Action::Start | Action::Pause | Action::Resume => counts.kills += 1,
        }
        Ok(())
    }

    async fn drain(&self) -> Result<()> {
        let regions = self.run.deployment.regions.len();
        let region = usize::try_from(lock(&self.counts).drains)? % regions;
        let (at, name) = ((region + 1) % regions, self.run.name(region));
        until_done(self.run, at, &["region", "drain", &name, "--actor", "drill", "--reason", "drill"])
            .await?;
        self.run.until_standing(at, region, "drained", DONE_WITHIN).await?;
        wait::pause((self.pace.drain / 10).min(Duration::from_secs(10))).await;
        until_done(self.run, at, &["region", "resume", &name, "--actor", "drill"]).await?;
        self.run.until_standing(at, region, "serving", DONE_WITHIN).await
    }

    /// Samples for as long as it is polled, and reports the progress.
    async fn measure(&self, begun: Instant, meter: &mut Meter) -> Infallible {
        let (mut due, mut tell) = (begun, begun + self.pace.progress);
        loop {
            wait::pause_until(due).await;
            meter.look(self.run.deployment).await;
            due = (due + self.pace.sample).max(Instant::now());
            if Instant::now() >= tell {
                tell += self.pace.progress;
                (self.run.say)(&self.progress(begun, meter));
            }
        }
    }

    fn progress(&self, begun: Instant, meter: &Meter) -> String {
        let Counts { reloads, rotations, stops, kills, drains } = *lock(&self.counts);
        let (so_far, all) = (begun.elapsed().as_secs(), (self.end - begun).as_secs());
        let keys = self.run.field.lives().len();
        let mut text = format!(
            "soak: {so_far} of {all} s, {keys} keys, {reloads} reloads, {rotations} rotations, {stops} stops, {kills} kills, {drains} drains"
        );
        for (region, sample) in meter.newest() {
            let name = self.run.name(region);
            let open = sample.descriptors;
            let (mib, to_store) = (sample.rss / 1024, open.store);
            let _ = write!(text, ", {name} {mib} MiB {to_store}+{} descriptors", open.kept + open.others);
        }
        text
    }
}

fn hang_up((_region, gateway): (usize, &Arc<Gateway>)) {
    if let Some(process) = gateway.process() {
        process.hang_up();
    }
}

/// Number of times that a gateway has read its files again; none if it does not answer.
async fn reloads(gateway: &Gateway) -> Option<u64> {
    counter(gateway, "onceway_config_reloads_total{result=\"ok\"}", PATIENCE).await
}

/// True if the gateway at that port shows a peer the certificate in the region's file.
async fn shows_its_file(dir: &Path, region: &RegionName, port: u16) -> Result<bool> {
    let folder = dir.join("certificates");
    let (certificate, key) = files::certificate_and_key(&folder, region);
    let file = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut authorities = RootCertStore::empty();
    // The authority's certificate comes first; a list of revoked ones may follow.
    authorities.add(CertificateDer::from_pem_file(folder.join("ca.pem"))?)?;
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities)
        .with_client_auth_cert(file.clone(), PrivateKeyDer::from_pem_file(key)?)?;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let name = ServerName::try_from(format!("{region}.onceway"))?;
    let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    Ok(shown.is_some() && shown == file.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soaks_pace_fits_its_length() {
        let (short, long) = (Pace::of(Duration::from_secs(40)), Pace::of(Duration::from_secs(1_800)));
        assert_eq!((long.restart.as_secs(), long.drain.as_secs()), (60, 300));
        for pace in [short.reload, short.rotation, short.restart * 2, short.drain] {
            assert!(pace < Duration::from_secs(40));
        }
    }
}

//! The witness file: settings of a witness, and the path of the ring.
//!
//! Paths are relative to the file. The ring has the drift and the list of witnesses.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::admin::{self, Admin};
use super::listen::apart;
use super::problems::{Errors, Need, Surroundings, Watched, judged};
use super::reader::{Problems, Section, Source, named};
use super::region::{self, Log};
use super::ring::{self, RingFile};
use super::values::{region_name, socket};
use crate::adapters::identity::IdentityFiles;
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;
use crate::protocol::time::Drift;

/// All checked settings of a witness.
#[derive(Clone, Debug)]
pub struct WitnessConfig {
    /// Name of the witness, as in its certificate and in `ring.toml`.
    pub name: RegionName,
    /// File of its acceptor.
    pub file: PathBuf,
    /// For peers, mTLS.
    pub peer: SocketAddr,
    /// For operators and health checks; plain HTTP unless `[admin]` has `tls`.
    pub admin: SocketAddr,
    /// Those whom the admin listener answers.
    pub operators: Admin,
    /// The witness's certificate, its key, and the certificates of the deployment's authority.
    pub identity: IdentityFiles,
    /// The ring of the files: its regions are heard before a view is known.
    pub ring: Arc<Ring>,
    /// Bounds on the error of clocks.
    pub drift: Drift,
    /// Format and levels of the log.
    pub log: Log,
}

impl WitnessConfig {
    /// Reads a witness file and the ring that it names, and checks everything. Blocks: two files.
    /// The errors are all problems of both.
    pub fn load(path: &Path) -> Result<Self, Errors> {
        Self::load_watched(path).0
    }

    /// Like [`WitnessConfig::load`], with the files that were looked at, even after errors.
    pub fn load_watched(path: &Path) -> (Result<Self, Errors>, Watched) {
        let environment = |name: &str| std::env::var(name).ok();
        let surroundings = Surroundings { environment: &environment, need: Need::Serve };
        judged(named(path, |source, problems| read(source, surroundings, problems)))
    }
}

/// Reads the file and the ring that it names. Errors are added to `problems`.
pub(super) fn read(source: &Source, within: Surroundings<'_>, problems: &Problems) -> Option<WitnessConfig> {
    let document = source.parse(problems)?;
    let top = Section::top(source, &document, problems).within(within);
    let advice = "say which [[witness]] of ring.toml this is, such as name = \"witness-1\"";
    let name = top.required_located("name", advice, region_name);
    let advice = "name the file that all regions share, such as ring = \"ring.toml\"";
    let ring = top.required_located("ring", advice, |value| top.path(value));
    let advice = "name the file on a local disk that it keeps its promises in, such as file = \"/var/lib/onceway/witness\"";
    let kept = top.required("file", advice, |value| top.path(value));
    let (peer, admin) = listen(&top);
    let operators = admin::read(&top, admin, false);
    let identity = identity(&top, name.as_ref().map(|name| &name.value));
    let log = region::log(&top);
    top.finish();
    let ring = ring.and_then(|file| Source::read_by(&file, problems, ring::read));
    if let (Some(name), Some(ring)) = (&name, &ring)
        && !ring.failover.witnesses.contains(&name.value)
    {
        let me = &name.value;
        let why = format!(
            "{me} is no witness of the ring: add it there (equal in all regions) as [[witness]] name = \"{me}\""
        );
        problems.add(&name.at, why);
    }
    let RingFile { drift, ring, .. } = ring?;
    Some(WitnessConfig {
        name: name?.value,
        file: kept?,
        peer: peer?,
        admin: admin?,
        operators: operators?,
        identity: identity?,
        ring,
        drift,
        log,
    })
}

fn listen(top: &Section<'_>) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let Some(section) = top.needed("listen", "say where to listen: peer and admin") else {
        return (None, None);
    };
    let at = |key, advice| section.required(key, advice, socket);
    let peer = at("peer", "say where regions connect, such as peer = \"0.0.0.0:7403\"");
    let admin = at("admin", "say where operators connect, such as admin = \"127.0.0.1:7402\"");
    apart(top, &[("peer", peer), ("admin", admin)]);
    (peer, admin)
}

fn identity(top: &Section<'_>, me: Option<&RegionName>) -> Option<IdentityFiles> {
    let section = top.needed("peer", "say how regions know it: certificate, key and ca")?;
    let advice = "name the witness's certificate; `onceway certs` makes one for its name";
    region::identity(&section, me, advice)
}

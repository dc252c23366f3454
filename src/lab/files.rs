//! The files of a deployment on one machine: ring, routes, credentials, one region file per
//! gateway, certificates. The demo runs files as a user would write them.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use onceway_client::Ask;
use onceway_protocol::region::RegionName;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use super::cluster::SUPERUSER;
use super::ports::RegionPorts;

/// The demo's tenants and their tokens. They open nothing but a demo.
pub const TENANTS: [(&str, &str); 2] = [("acme", "sk_demo_acme"), ("globex", "sk_demo_globex")];
pub const GATEWAY_ROLE: &str = "onceway_gateway";
pub const REPLICATION_ROLE: &str = "onceway_replication";
pub const DATABASE: &str = "onceway";
pub const DEPLOYMENT: &str = "demo";
pub const SEED: u64 = 7400;

/// The demo's routes: name, which is the end of the path; key; settings of its own.
const ROUTES: [(&str, &str, &str); 5] = [
    ("charges", "required", "recovery = \"probe\"\nprobe = \"/onceway/effects\"\nhold = \"10s\"\n"),
    (
        "payouts",
        "required",
        "recovery = \"park\"\nescrow = \"claim\"\nhold = \"12s\" # two more, in which the claim is lodged elsewhere\n",
    ),
    ("emails", "required", "recovery = \"rerun\"\nmax_attempts = 3\nhold = \"10s\"\n"),
    ("notes", "optional", "recovery = \"park\"\nhold = \"10s\"\n"),
    ("blobs", "off", ""),
];

/// Failover that people can watch: a lost region's keys move within seconds.
pub const FAILOVER: &str = r#"
[clock]
drift_ppm = 500
margin = "50ms"

[failover]
lease = "3s"
floor = "1s"
multiple = 2.0
stable_for = "5s"
"#;

const POLICY: &str = r#"wait = "3s"
upstream_timeout = "5s"
settle_time = "0s"
retention = "24h"
mode = "prefer"
accept = { keep_headers = ["Demo-Behave"] }
"#;

pub struct RegionFile<'a> {
    pub name: &'a RegionName,
    pub ports: RegionPorts,
    /// The peers' listeners and their Postgres, as reached from here.
    pub peers: Vec<(RegionName, SocketAddr)>,
    pub publishers: Vec<(RegionName, SocketAddr)>,
    /// The endpoints of the upstream [`PROVIDER`], behind TLS; none leaves it out.
    pub endpoints: Vec<SocketAddr>,
}

/// The named upstream of a deployment's routes, and the folder of its certificates.
pub const PROVIDER: &str = "provider";

/// A request with this key, as the first tenant's client sends it to the gateway at `address`.
pub fn keyed(address: &str, path: &str, key: &str, body: &'static str) -> Ask {
    Ask::post(format!("{address}{path}"), body)
        .with("Authorization", format!("Bearer {}", TENANTS[0].1))
        .with("Idempotency-Key", format!("\"{key}\""))
}

pub fn write_shared(dir: &Path, regions: &[RegionName]) -> Result<()> {
    let mut ring = ring(regions, &vec![1; regions.len()], FAILOVER);
    if regions.len() == 2 {
        // Two voters have no majority without each other.
        ring.push_str("mode = \"manual\"\n");
    }
    write(dir, "ring.toml", &ring)?;
    let mut routes = routes();
    if regions.len() == 1 {
        // In a deployment of one region, no other region can hold a claim.
        routes = routes.replace("escrow = \"claim\"\n", "");
    }
    write(dir, "routes.toml", &routes)?;
    let mut known = String::from("# SHA-256 of the demo's tokens.\n");
    for (tenant, token) in TENANTS {
        let digest = crate::hex(&Sha256::digest(token.as_bytes()));
        write!(known, "\n[[credential]]\ntenant = \"{tenant}\"\nsha256 = \"{digest}\"\n")?;
    }
    write(dir, "credentials.toml", &known)
}

/// Has the program make certificates for these regions in `dir/folder`, unless some are there.
pub fn certify(program: &Path, dir: &Path, folder: &str, regions: &[RegionName]) -> Result<()> {
    let folder = dir.join(folder);
    if folder.join("ca.pem").exists() { Ok(()) } else { issue(program, &folder, regions) }
}

/// `onceway certs`, which signs with the authority that is there, or makes one.
fn issue(program: &Path, folder: &Path, regions: &[RegionName]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["certs", "--out"]).arg(folder);
    for region in regions {
        command.args(["--region", region.as_str()]);
    }
    let made = command.output().context("cannot run `onceway certs`")?;
    ensure!(made.status.success(), "`onceway certs`: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}

pub fn certificate_and_key(folder: &Path, region: &RegionName) -> (PathBuf, PathBuf) {
    (folder.join(format!("{region}.pem")), folder.join(format!("{region}.key")))
}

fn routes() -> String {
    let mut text = "# The demo's routes. The same file in every region.".to_owned();
    for (name, key, own) in ROUTES {
        let policy = if own.is_empty() { own } else { POLICY };
        text += &format!("\n[[route]]\nname = \"{name}\"\nmethods = [\"POST\"]\npath = \"/v1/{name}\"\n");
        text += &format!("key = \"{key}\"\n{policy}{own}");
    }
    text
}

pub fn routes_to_provider() -> String {
    routes().replace("\nkey = ", &format!("\nupstream = \"{PROVIDER}\"\nkey = "))
}

/// Makes the certificate of [`PROVIDER`] under an authority of its own; keeps one that is there.
pub fn certify_provider(program: &Path, dir: &Path) -> Result<TlsAcceptor> {
    let name = RegionName::parse(PROVIDER).context("a name")?;
    certify(program, dir, PROVIDER, std::slice::from_ref(&name))?;
    let (certificate, key) = certificate_and_key(&dir.join(PROVIDER), &name);
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub fn ring(regions: &[RegionName], weights: &[u32], failover: &str) -> String {
    let mut ring = format!("deployment = \"{DEPLOYMENT}\"\nseed = {SEED}\nplace_by = \"key\"\n");
    for (name, weight) in regions.iter().zip(weights) {
        ring.push_str(&format!("\n[[region]]\nname = \"{name}\"\nweight = {weight}\n"));
    }
    ring.push_str(failover);
    ring
}

pub fn write_region(dir: &Path, region: &RegionFile<'_>) -> Result<PathBuf> {
    write_as(dir, region.name.as_str(), region)
}

/// Writes a region's file under this name, such as that of one of its gateways.
pub(super) fn write_as(dir: &Path, file: &str, region: &RegionFile<'_>) -> Result<PathBuf> {
    let RegionFile { name, ports, peers, publishers, endpoints } = region;
    let mut text = format!(
        r#"region = "{name}"
ring = "ring.toml"
routes = "routes.toml"
credentials = "credentials.toml"

[listen]
public = "127.0.0.1:{public}"
admin = "127.0.0.1:{admin}"
peer = "127.0.0.1:{peer}"

[store]
url = "postgres://{GATEWAY_ROLE}@127.0.0.1:{postgres}/{DATABASE}"

[upstream]
address = "http://127.0.0.1:{upstream}"
shared = true

[peer]
certificate = "certificates/{name}.pem"
key = "certificates/{name}.key"
ca = "certificates/ca.pem"

[peer.addresses]
"#,
        public = ports.public,
        admin = ports.admin,
        peer = ports.peer,
        postgres = ports.postgres,
        upstream = ports.upstream,
    );
    for (peer, address) in peers {
        writeln!(text, "{peer} = \"{address}\"")?;
    }
    if !endpoints.is_empty() {
        let addresses: Vec<String> = endpoints.iter().map(|at| format!("\"https://{at}\"")).collect();
        write!(
            text,
            "\n[upstreams.{PROVIDER}]\naddresses = [{}]\nshared = true\n\n[upstreams.{PROVIDER}.tls]\nca = \"{PROVIDER}/ca.pem\"\nserver_name = \"{PROVIDER}.onceway\"\n",
            addresses.join(", ")
        )?;
    }
    let admin = format!("postgres://{SUPERUSER}@127.0.0.1:{}/{DATABASE}", ports.postgres);
    write!(text, "\n[provision]\nadmin_url = \"{admin}\"\n\n[provision.publishers]\n")?;
    for (peer, address) in publishers {
        writeln!(text, "{peer} = \"{}\"", conninfo(*address))?;
    }
    let file = format!("{file}.toml");
    write(dir, &file, &text)?;
    Ok(dir.join(file))
}

/// Connection string from a region's Postgres to another one at this address.
pub fn conninfo(at: SocketAddr) -> String {
    format!("host={} port={} user={REPLICATION_ROLE} dbname={DATABASE}", at.ip(), at.port())
}

/// Writes one file into `dir`, in place of an older one. Errors name it.
pub fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Does the same for a file that is read meanwhile: a reader sees the old or the new, whole.
pub fn replace(dir: &Path, name: &str, text: &str) -> Result<()> {
    let fresh = format!(".{name}.new");
    write(dir, &fresh, text)?;
    fs::rename(dir.join(fresh), dir.join(name)).with_context(|| format!("cannot replace {name}"))
}

/// Makes new certificates and keys for these regions in place of the old, under the same authority.
pub fn rotate(program: &Path, dir: &Path, regions: &[RegionName]) -> Result<()> {
    let (here, fresh) = (dir.join("certificates"), dir.join("certificates").join(".new"));
    fs::create_dir(&fresh)?;
    for authority in ["ca.key", "ca.pem"] {
        fs::copy(here.join(authority), fresh.join(authority))?;
    }
    issue(program, &fresh, regions)?;
    for region in regions {
        let (from, to) = (certificate_and_key(&fresh, region), certificate_and_key(&here, region));
        fs::rename(from.1, to.1)?;
        fs::rename(from.0, to.0)?;
    }
    fs::remove_dir_all(&fresh).context("cannot remove the folder of fresh certificates")
}

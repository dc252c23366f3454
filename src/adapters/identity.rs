//! The region's identity towards its peers: certificates, and TLS settings for both ends.
//!
//! A claim to be a region counts only with a certificate of the deployment's own authority for
//! `<region>.onceway`. [`super::issue`] makes the files. This file must not fall back to anything
//! weaker than TLS 1.3 with both sides authenticated (docs/protocol.md#rule-21).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};

use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;

/// The one protocol between peers: HTTP/2.
pub const ALPN: &[u8] = b"h2";

/// Reason why a region's TLS material cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// A file has the wrong content: its fault, and the content that is needed.
    #[error("{0}: {1}")]
    Content(PathBuf, String),
    /// Certificates could not be made.
    #[error("cannot make certificates: {0}")]
    Generate(#[from] rcgen::Error),
}

impl IdentityError {
    /// The file at fault.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path, _) | Self::Content(path, _) => Some(path),
            Self::Generate(_) => None,
        }
    }

    /// True if the file could not even be read.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::File(..))
    }
}

/// Paths of a region's TLS material. All files are PEM.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    /// The region's certificate, followed by intermediate ones if any.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities whose regions are peers: use an authority of the deployment's own.
    pub authorities: PathBuf,
}

/// A region's identity, ready for use. Cheap to clone; all clones are renewed together.
#[derive(Clone, Debug)]
pub struct PeerIdentity {
    /// This region.
    pub me: RegionName,
    /// Versions that this process speaks.
    pub speaks: Versions,
    now: Arc<ArcSwap<Settings>>,
}

#[derive(Clone, Debug)]
struct Settings {
    verifier: Arc<dyn ClientCertVerifier>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// Counts the readings of the files.
    reading: u64,
}

/// The name in the certificate of `region`.
pub fn server_name(region: &RegionName) -> ServerName<'static> {
    // A region's alphabet is within that of DNS labels, and its length within a label's.
    ServerName::try_from(dns_name(region)).expect("a region's name is a DNS label")
}

/// The DNS name in the certificate of `region`.
pub fn dns_name(region: &RegionName) -> String {
    format!("{region}.onceway")
}

/// True if the first of `certificates`, as TLS verified them, names `claimed`.
pub fn region_of(certificates: &[CertificateDer<'_>], claimed: &RegionName) -> bool {
    let Some(first) = certificates.first() else { return false };
    webpki::EndEntityCert::try_from(first)
        .is_ok_and(|cert| cert.verify_is_valid_for_subject_name(&server_name(claimed)).is_ok())
}

impl PeerIdentity {
    /// Reads the files. Blocks; meant for the start of a process. An error is one line that names
    /// the file and its fault: unreadable, not PEM, a key of another certificate, a certificate of
    /// another region.
    pub fn load(me: RegionName, files: &IdentityFiles) -> Result<Self, IdentityError> {
        let chain = chain_of(&me, &files.certificate)?;
        let key = private_key(&files.key)?;
        let roots = Arc::new(roots(&files.authorities)?);
        let revoked = revoked(&files.authorities)?;
        let unfit = |cause: VerifierBuilderError| content(&files.authorities, cause.to_string());
        // An authority without a list has revoked no certificate.
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
            .with_crls(revoked.clone())
            .allow_unknown_revocation_status()
            .build()
            .map_err(unfit)?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .with_crls(revoked)
            .allow_unknown_revocation_status()
            .build()
            .map_err(unfit)?;
        let mismatch = mismatch(&files.key, &files.certificate);
        let server = Arc::new(server(clients.clone(), chain.clone(), key.clone_key()).map_err(&mismatch)?);
        let client = Arc::new(client(servers, chain, key).map_err(&mismatch)?);
        let now = Settings { verifier: clients, client, server, reading: 0 };
        Ok(Self { me, speaks: Versions::OURS, now: Arc::new(ArcSwap::from_pointee(now)) })
    }

    /// All errors that [`PeerIdentity::load`] would find, each file by itself. Blocks.
    pub fn wrong(me: &RegionName, files: &IdentityFiles) -> Vec<IdentityError> {
        let certificate = chain_of(me, &files.certificate).err();
        let alone = [certificate, private_key(&files.key).err(), roots(&files.authorities).err()];
        let alone: Vec<IdentityError> = alone.into_iter().flatten().collect();
        if alone.is_empty() { Self::load(me.clone(), files).err().into_iter().collect() } else { alone }
    }

    /// The same identity, of a process that speaks these versions.
    pub fn speaking(self, speaks: Versions) -> Self {
        Self { speaks, ..self }
    }

    /// TLS settings for the next connection to a peer.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        self.now.load().client.clone()
    }

    /// TLS settings for the next connection to the peer listener: strangers are refused.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.now.load().server.clone()
    }

    /// Number of readings of the files: what was let in before the last one may be revoked since.
    pub fn reading(&self) -> u64 {
        self.now.load().reading
    }

    #[cfg(test)]
    pub(super) fn lets_in(&self, certificates: &[CertificateDer<'_>]) -> bool {
        let Some((first, more)) = certificates.split_first() else { return false };
        self.now.load().verifier.verify_client_cert(first, more, UnixTime::now()).is_ok()
    }

    /// True if the certificates by which a client was let in are not revoked since. They are judged
    /// once per reading: `seen` is the last reading under which they were judged. A certificate
    /// that expired, or whose authority is gone, keeps its open connection.
    pub fn still_lets_in(&self, certificates: &[CertificateDer<'_>], seen: &AtomicU64) -> bool {
        let now = self.now.load();
        if seen.load(Ordering::SeqCst) == now.reading {
            return true;
        }
        let Some((first, more)) = certificates.split_first() else { return false };
        let judged = now.verifier.verify_client_cert(first, more, UnixTime::now());
        let revoked = matches!(judged, Err(rustls::Error::InvalidCertificate(CertificateError::Revoked)));
        if !revoked {
            seen.store(now.reading, Ordering::SeqCst);
        }
        !revoked
    }

    /// Takes the certificates, authorities and revocation lists of `newer` for all later
    /// connections. Open connections keep their certificates, and end if theirs is revoked. The
    /// identity of another region is ignored.
    pub fn renew(&self, newer: &PeerIdentity) {
        if newer.me != self.me {
            return;
        }
        let newer = newer.now.load_full();
        self.now.store(Arc::new(Settings { reading: self.reading() + 1, ..(*newer).clone() }));
    }
}

/// The one cryptographic provider.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn server(
    clients: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // No early data and no resumption: a captured flight must be worthless.
    config.max_early_data_size = 0;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

fn client(
    servers: Arc<WebPkiServerVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_webpki_verifier(servers)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_early_data = false;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|cause| IdentityError::File(path.to_owned(), cause))
}

/// Reads a certificate and its intermediate ones, at least one. Blocks. An error names the file.
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let all: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|cause| content(path, format!("no PEM certificates: {cause}")))?;
    if all.is_empty() {
        return Err(content(path, "no PEM certificate in it".into()));
    }
    Ok(all)
}

/// Reads a private key. Blocks. An error names the file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, IdentityError> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|cause| content(path, format!("no PEM private key: {cause}")))
}

fn chain_of(me: &RegionName, path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let chain = chain(path)?;
    if region_of(&chain, me) { Ok(chain) } else { Err(unnamed(path, me)) }
}

/// Reads authorities. Blocks. An error names the file.
pub fn roots(path: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for authority in chain(path)? {
        roots.add(authority).map_err(|cause| content(path, cause.to_string()))?;
    }
    Ok(roots)
}

fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, IdentityError> {
    CertificateRevocationListDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|cause| content(path, format!("a revocation list is no PEM: {cause}")))
}

/// Makes the error for a file whose content cannot be used.
pub fn content(path: &Path, cause: String) -> IdentityError {
    IdentityError::Content(path.to_owned(), cause)
}

/// Makes the error for a certificate of another holder.
pub fn unnamed(path: &Path, me: &RegionName) -> IdentityError {
    content(path, format!("the certificate does not name {} as a DNS name", dns_name(me)))
}

/// Makes the error for a key that cannot be used with its certificate.
pub fn mismatch<'a>(key: &'a Path, certificate: &'a Path) -> impl Fn(rustls::Error) -> IdentityError + 'a {
    move |cause| content(key, format!("cannot be used with {}: {cause}", certificate.display()))
}

/// Paths at which [`Generated::write`] puts a region's files.
pub fn files_in(directory: &Path, region: &RegionName) -> IdentityFiles {
    IdentityFiles {
        certificate: directory.join(format!("{region}.pem")),
        key: directory.join(format!("{region}.key")),
        authorities: directory.join("ca.pem"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::issue::{Purpose, add, generate};
    use super::*;
    use crate::protocol::examples::name as region;

    #[test]
    fn a_generated_identity_loads_and_names_its_region() {
        let directory = tempfile::tempdir().unwrap();
        let (eu, us) = (region("eu"), region("us"));
        generate(&[eu.clone(), us.clone()]).unwrap().write(directory.path()).unwrap();
        let files = files_in(directory.path(), &eu);
        let identity = PeerIdentity::load(eu.clone(), &files).unwrap();
        assert_eq!(identity.server_config().alpn_protocols, vec![b"h2".to_vec()]);
        assert_eq!(identity.server_config().max_early_data_size, 0);
        let chain = chain(&files.certificate).unwrap();
        assert!(region_of(&chain, &eu));
        assert!(!region_of(&chain, &us));
        assert!(!region_of(&chain, &region("e")));
        assert!(!region_of(&[], &eu));
        for name in ["ca.key", "eu.key", "us.key"] {
            let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn files_are_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let generated = generate(&[region("eu")]).unwrap();
        generated.write(directory.path()).unwrap();
        let again = generated.write(directory.path()).unwrap_err().to_string();
        assert!(again.contains("ca.pem") && again.contains("exists"), "{again}");
        assert!(add(directory.path(), &[region("eu")], Purpose::Region).is_err(), "files were overwritten");
    }

    #[test]
    fn unusable_material_is_named_in_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let (eu, us) = (region("eu"), region("us"));
        generate(&[eu.clone(), us.clone()]).unwrap().write(directory.path()).unwrap();
        let good = files_in(directory.path(), &eu);
        let garbage = directory.path().join("garbage.pem");
        fs::write(&garbage, "nothing to see").unwrap();
        let missing = directory.path().join("missing.pem");
        let us_files = files_in(directory.path(), &us);
        let table = [
            (IdentityFiles { certificate: missing.clone(), ..good.clone() }, "missing.pem: No such file"),
            (IdentityFiles { key: missing.clone(), ..good.clone() }, "missing.pem: No such file"),
            (IdentityFiles { authorities: missing, ..good.clone() }, "missing.pem: No such file"),
            (
                IdentityFiles { certificate: garbage.clone(), ..good.clone() },
                "garbage.pem: no PEM certificate",
            ),
            (IdentityFiles { key: garbage.clone(), ..good.clone() }, "garbage.pem: no PEM private key"),
            (IdentityFiles { authorities: garbage, ..good.clone() }, "garbage.pem: no PEM certificate"),
            (IdentityFiles { key: us_files.key.clone(), ..good.clone() }, "us.key: cannot be used with"),
            (
                IdentityFiles { certificate: us_files.certificate, ..good },
                "us.pem: the certificate does not name eu.onceway",
            ),
        ];
        for (files, expected) in table {
            let error = PeerIdentity::load(eu.clone(), &files).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}

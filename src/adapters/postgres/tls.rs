//! TLS to Postgres: the certificates that an `Address` names, and the handshake.
//!
//! The files are read for every new connection. A file that cannot be used leaves the last good
//! ones in use, with a warning. No connection has less protection than its address asks for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::identity::{self, IdentityError};

/// Protocol name that newer servers expect if TLS starts at once, as libpq always sends it.
const ALPN: &[u8] = b"postgresql";

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Protection {
    Plain,
    /// TLS with any server.
    Encrypted {
        own: Option<Own>,
    },
    /// TLS with a server whose certificate one of these authorities signed for the host's name.
    Verified {
        authorities: PathBuf,
        own: Option<Own>,
    },
}

impl Protection {
    pub(super) fn files(&self) -> (Option<&PathBuf>, Option<&Own>) {
        match self {
            Self::Plain => (None, None),
            Self::Encrypted { own } => (None, own.as_ref()),
            Self::Verified { authorities, own } => (Some(authorities), own.as_ref()),
        }
    }
}

/// Our certificate, for servers that ask for one. Both files are PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Reason why TLS cannot even begin. It names the file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unusable(String);

impl From<IdentityError> for Unusable {
    fn from(error: IdentityError) -> Self {
        Self(error.to_string())
    }
}

/// Makes TLS connections of one kind. Clones share the files read last.
#[derive(Clone)]
pub(super) struct Tls {
    protection: Arc<Protection>,
    last: Arc<ArcSwapOption<ClientConfig>>,
}

impl Tls {
    /// Makes it for an address with TLS; `None` for plain text.
    pub(super) fn new(protection: &Protection) -> Option<Self> {
        let is_plain = *protection == Protection::Plain;
        (!is_plain).then(|| Self { protection: Arc::new(protection.clone()), last: Arc::default() })
    }

    /// Reads the files now. Blocks.
    pub(super) fn read(&self) -> Result<(), Unusable> {
        self.last.store(Some(Arc::new(client(&self.protection)?)));
        Ok(())
    }

    /// Prepares TLS for one connection, with the files as they are now.
    pub(super) async fn ready(&self) -> Ready {
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || this.read()).await;
        let why = match read {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(why),
            Err(_) => Some(Unusable("its files could not be read: the process ends".to_owned())),
        };
        let Some(last) = self.last.load_full() else {
            return Ready(Err(why.unwrap_or_else(|| Unusable("its files were not read".to_owned()))));
        };
        if let Some(why) = why {
            tracing::warn!(%why, "TLS to Postgres goes on with the certificates as they were");
        }
        Ready(Ok(MakeRustlsConnect::new(ClientConfig::clone(&last))))
    }
}

/// TLS for one connection, or the reason why it cannot begin.
pub(super) struct Ready(Result<MakeRustlsConnect, Unusable>);

impl<S> MakeTlsConnect<S> for Ready
where
    MakeRustlsConnect: MakeTlsConnect<S, Error = std::convert::Infallible>,
{
    type Stream = <MakeRustlsConnect as MakeTlsConnect<S>>::Stream;
    type TlsConnect = <MakeRustlsConnect as MakeTlsConnect<S>>::TlsConnect;
    type Error = Unusable;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, Unusable> {
        let made = self.0.as_mut().map_err(|why| why.clone())?;
        let Ok(connect) = MakeTlsConnect::<S>::make_tls_connect(made, domain);
        Ok(connect)
    }
}

fn client(protection: &Protection) -> Result<ClientConfig, Unusable> {
    let unusable = |why: &dyn std::fmt::Display| Unusable(why.to_string());
    let builder = ClientConfig::builder_with_provider(identity::provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|why| unusable(&why))?;
    let (builder, own) = match protection {
        Protection::Plain => return Err(Unusable("no TLS was asked for".to_owned())),
        Protection::Encrypted { own } => {
            let anyone = Arc::new(Anyone(identity::provider()));
            (builder.dangerous().with_custom_certificate_verifier(anyone), own)
        }
        Protection::Verified { authorities, own } => {
            (builder.with_root_certificates(roots(authorities)?), own)
        }
    };
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(Own { certificate, key }) => {
            let (chain, private) = (identity::chain(certificate)?, identity::private_key(key)?);
            builder.with_client_auth_cert(chain, private).map_err(identity::mismatch(key, certificate))?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

fn roots(path: &Path) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    // Bundles of public authorities hold some that this process cannot use.
    if roots.add_parsable_certificates(identity::chain(path)?).0 == 0 {
        return Err(identity::content(path, "no certificate in it can be used as an authority".to_owned()));
    }
    Ok(roots)
}

/// All faults of files here for which a connection would be refused, each by itself. Blocks.
pub(super) fn wrong(protection: &Protection) -> Vec<String> {
    if *protection == Protection::Plain {
        return Vec::new();
    }
    let (authorities, own) = protection.files();
    let authorities = authorities.and_then(|path| roots(path).err());
    let chain = own.and_then(|own| identity::chain(&own.certificate).err());
    let key = own.and_then(|own| identity::private_key(&own.key).err());
    let alone: Vec<IdentityError> = [authorities, chain, key].into_iter().flatten().collect();
    match alone.is_empty() {
        true => client(protection).err().map(|why| why.to_string()).into_iter().collect(),
        false => alone.iter().filter(|error| !error.is_unread()).map(ToString::to_string).collect(),
    }
}

/// Fault of a file of authorities, if the file is on this machine. Blocks.
pub fn wrong_authorities(path: &Path) -> Option<String> {
    roots(path).err().filter(|error| !error.is_unread()).map(|error| error.to_string())
}

/// Verifier for `sslmode=require`: it takes any server that holds the key of its certificate.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _server: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

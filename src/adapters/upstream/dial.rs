//! One new connection to an endpoint: TCP, and TLS where its address says https.
//!
//! TLS 1.2 or 1.3, HTTP/1.1 by ALPN, the server's name verified. Early data is off: an attacker who
//! captured it could replay a request.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ProtocolVersion, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::strict::writes_through;
use crate::adapters::identity::{IdentityError, chain, mismatch, private_key, provider, roots};

/// Sessions that are remembered for the next handshakes with each endpoint's name.
const SESSIONS: usize = 64;
/// The largest record that holds one alert and nothing else: its header, level, description and
/// type, and the tag of the cipher (RFC 8446 sections 5.2 and 6), with a little padding.
const ALERT: usize = 30;

/// TLS settings of an upstream, all files PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities in place of the public ones.
    pub ca: Option<PathBuf>,
    /// Our certificate and its private key, for an upstream that asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// True if TLS 1.2 is refused.
    pub only_13: bool,
}

/// TLS settings that later connections use, and a newer reading of the files replaces.
#[derive(Debug)]
pub struct Tls(ArcSwap<ClientConfig>);

impl Tls {
    /// Reads the files. Blocks. An error is one line that names the file and its fault.
    pub fn load(files: &TlsFiles) -> Result<Self, IdentityError> {
        let versions: &[_] = match files.only_13 {
            true => &[&rustls::version::TLS13],
            false => &[&rustls::version::TLS13, &rustls::version::TLS12],
        };
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions).expect("the provider has both versions");
        let trusted = match &files.ca {
            Some(ca) => roots(ca)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let builder = builder.with_root_certificates(trusted);
        let mut config = match &files.own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, private) = (chain(certificate)?, private_key(key)?);
                builder.with_client_auth_cert(chain, private).map_err(mismatch(key, certificate))?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.enable_early_data = false;
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(Self(ArcSwap::from_pointee(config)))
    }

    /// The settings for a connection made now.
    pub fn now(&self) -> Arc<ClientConfig> {
        self.0.load_full()
    }

    /// Takes the settings of `newer` for all later connections.
    pub fn renew(&self, newer: &Self) {
        self.0.store(newer.0.load_full());
    }
}

/// A connection's bytes, encrypted or not.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

pub struct Dialled {
    pub wire: Box<dyn Wire>,
    /// A second handle of its socket.
    pub socket: OwnedFd,
    /// Present after TLS 1.3's handshake: a server may refuse this side's certificate after it.
    pub judged_late: Option<Judged>,
}

/// Bytes that were read since a handshake that the server may still refuse.
#[derive(Clone, Debug)]
pub struct Judged {
    read: Arc<AtomicUsize>,
    before: usize,
}

impl Judged {
    /// True if the server has sent nothing since but, perhaps, one alert.
    pub fn is_unfinished(&self) -> bool {
        self.read.load(Ordering::Relaxed) - self.before <= ALERT
    }
}

/// Connects, and shakes hands if `tls` is given. The caller bounds the time. After an error no byte
/// of a request was written.
pub async fn dial(address: SocketAddr, tls: Option<(&Tls, &ServerName<'static>)>) -> io::Result<Dialled> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = stream.as_fd().try_clone_to_owned()?;
    let Some((tls, name)) = tls else {
        return Ok(Dialled { wire: Box::new(stream), socket, judged_late: None });
    };
    let read = Arc::new(AtomicUsize::new(0));
    let counted = Counted { stream, read: read.clone() };
    let stream = TlsConnector::from(tls.now()).connect(name.clone(), counted).await?;
    let version = stream.get_ref().1.protocol_version();
    let before = read.load(Ordering::Relaxed);
    let judged_late = (version == Some(ProtocolVersion::TLSv1_3)).then_some(Judged { read, before });
    Ok(Dialled { wire: Box::new(stream), socket, judged_late })
}

struct Counted {
    stream: TcpStream,
    read: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.read.fetch_add(buffer.filled().len() - before, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    writes_through!();
}

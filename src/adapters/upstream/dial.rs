//! One new connection to an endpoint: TCP, TLS where its address says https, and a judge of the
//! heads of its answers.
//!
//! TLS 1.2 or 1.3, HTTP/1.1 by ALPN, the server's name verified. Early data is off: an attacker who
//! captured it could replay a request.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ProtocolVersion, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::adapters::identity::{IdentityError, chain, mismatch, private_key, provider, roots};

/// Sessions that are remembered for the next handshakes with each endpoint's name.
const SESSIONS: usize = 64;
/// The largest record that holds one alert and nothing else: its header, level, description and
/// type, and the tag of the cipher (RFC 8446 sections 5.2 and 6), with a little padding.
const ALERT: usize = 30;

/// Largest head of an answer, with [`OF_FIELD`] more per line: it fits between peers.
const HEAD_LIMIT: usize = 96 * 1024;
/// Cost of a line beside its bytes, as HTTP/2 counts (RFC 9113 section 6.5.2).
const OF_FIELD: usize = 32;
/// Most headers of an answer: hyper fails beyond, and here the reason is said.
const MOST_HEADERS: usize = 100;

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

/// The methods of `AsyncWrite`, for a type that only reads in its own way: they pass on to its
/// field `stream`.
macro_rules! writes_through {
    () => {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(context, bytes)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write_vectored(context, parts)
        }

        fn is_write_vectored(&self) -> bool {
            self.stream.is_write_vectored()
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    };
}
pub(crate) use writes_through;

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

/// A flag for the socket: an answer is awaited from now on.
#[derive(Clone, Debug, Default)]
pub struct Awaited(Arc<AtomicBool>);

impl Awaited {
    /// Says that the next byte that arrives begins a head.
    pub fn head(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A connection's bytes, of which the heads of answers are judged before hyper parses them.
///
/// hyper takes a bare LF for a line's end. Another reader does not: a part of a value there would
/// be a header here. So such a head breaks the connection, and the outcome is unknown. No byte is
/// changed, and no body is looked at: between two heads every byte passes.
pub struct Strict<S> {
    stream: S,
    awaited: Awaited,
    head: Option<Head>,
}

impl<S> Strict<S> {
    pub fn new(stream: S, awaited: Awaited) -> Self {
        Self { stream, awaited, head: None }
    }
}

#[derive(Default)]
struct Head {
    /// Counted size so far.
    size: usize,
    /// Bytes of the present line, without its end.
    line: usize,
    headers: usize,
    after_cr: bool,
    /// True once its first line has arrived.
    begun: bool,
    /// Class of its status.
    class: u8,
}

impl Head {
    /// Takes a byte in. `true` if it was the last one.
    fn take(&mut self, byte: u8) -> Result<bool, &'static str> {
        self.size += 1;
        if self.size > HEAD_LIMIT {
            return Err("the head of the upstream's answer is too large");
        }
        match (byte, self.after_cr) {
            (b'\n', false) => Err("a line of the upstream's answer ends with LF alone"),
            (b'\n', true) => {
                let ended = self.begun && self.line == 0;
                self.headers += usize::from(self.begun && self.line > 0);
                if self.headers > MOST_HEADERS {
                    return Err("the upstream's answer has more than 100 headers");
                }
                self.begun |= self.line > 0;
                self.size += OF_FIELD;
                (self.line, self.after_cr) = (0, false);
                // After an interim answer (1xx) another head follows.
                if ended && self.class == b'1' {
                    *self = Self::default();
                    return Ok(false);
                }
                Ok(ended)
            }
            (_, true) => Err("a line of the upstream's answer has a CR without its LF"),
            (b'\r', false) => {
                self.after_cr = true;
                Ok(false)
            }
            (_, false) => {
                // `HTTP/1.1 200`
                if !self.begun && self.line == 9 {
                    self.class = byte;
                }
                self.line += 1;
                Ok(false)
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let strict = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut strict.stream).poll_read(context, buffer))?;
        if strict.awaited.0.swap(false, Ordering::SeqCst) {
            strict.head = Some(Head::default());
        }
        for byte in &buffer.filled()[before..] {
            let Some(head) = strict.head.as_mut() else { break };
            match head.take(*byte) {
                Ok(false) => {}
                Ok(true) => strict.head = None,
                Err(why) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    writes_through!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of an answer's head in bytes; `Ok(None)` if it has not ended.
    fn end(text: &str) -> Result<Option<usize>, &'static str> {
        let mut head = Head::default();
        for (at, byte) in text.bytes().enumerate() {
            if head.take(byte)? {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    #[test]
    fn an_interim_response_does_not_end_the_head() {
        for head in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200\r\na: b\r\n\r\n",
            "\r\nHTTP/1.1 404 \r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\na: b\r\n\r\nHTTP/1.1 201 Made\r\n\r\n",
        ] {
            assert_eq!(end(&format!("{head}a\nb\rc")), Ok(Some(head.len())), "{head:?}");
            for cut in 0..head.len() {
                assert_eq!(end(&head[..cut]), Ok(None), "{:?}", &head[..cut]);
            }
        }
    }

    #[test]
    fn a_line_that_two_readers_end_in_two_places_breaks() {
        for head in [
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\r\na: b\nc: d\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\rc: d\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n\n",
            "\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\n\n",
        ] {
            assert!(end(head).is_err(), "{head:?}");
        }
        let lines = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:\r\n".repeat(count));
        assert!(matches!(end(&lines(MOST_HEADERS)), Ok(Some(_))));
        assert_eq!(end(&lines(MOST_HEADERS + 1)), Err("the upstream's answer has more than 100 headers"));
        let long = format!("HTTP/1.1 200 OK\r\na:{}\r\n\r\n", "b".repeat(HEAD_LIMIT));
        assert_eq!(end(&long), Err("the head of the upstream's answer is too large"));
    }
}

//! Shared parts of the network tests: certificates, bodies fed by hand, a raw HTTP/1.1 server that
//! records its input, time bounds.

pub use crate::support::*;
pub use http::{HeaderName, Response};
use http_body::Frame;
pub use http_body_util::Full;
pub use hyper::client::conn::http2::{SendRequest, handshake};
pub use hyper_util::rt::{TokioExecutor, TokioIo};
pub use onceway::adapters::identity::server_name;
use onceway::adapters::issue::{Generated, generate};
pub use onceway::adapters::upstream::{Base, HttpUpstream, ServiceSettings, UpstreamSettings};
pub use onceway::config::listen::{Edge, PublicLimits};
pub use onceway::ports::Upstream;
use onceway::ports::body::{Collected, collect};
pub use onceway::ports::body::{empty, full};
pub use onceway::ports::peers::{Forward, ForwardReply, PeerError, Question};
pub use onceway::ports::upstream::{ForwardKey, Probe, ProbeReply, SendError};
use onceway::ports::{BodyError, Polled};
pub use onceway::server::Listeners;
pub use onceway::server::peer::PeerLimits;
use rustls::client::WantsClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
pub use rustls::{ServerConfig, SupportedProtocolVersion};
use std::future::Future;
use std::task::Context;
use tokio::io::AsyncRead;
pub use tokio::sync::{Semaphore, mpsc};
pub use tokio_rustls::TlsConnector;
pub use tokio_rustls::client::TlsStream;

pub fn region(name: &str) -> RegionName {
    RegionName::parse(name).unwrap()
}

pub fn key_id(tenant: &str, key: &str) -> KeyId {
    KeyId::new(Tenant::parse(tenant).unwrap(), Key::parse(key).unwrap())
}

pub struct Pki {
    directory: TempDir,
}

impl Pki {
    pub fn new(regions: &[&str]) -> Self {
        let regions: Vec<RegionName> = regions.iter().map(|name| region(name)).collect();
        let generated: Generated = generate(&regions).unwrap();
        let directory = tempfile::tempdir().unwrap();
        generated.write(directory.path()).unwrap();
        Self { directory }
    }

    pub fn identity(&self, name: &str) -> PeerIdentity {
        PeerIdentity::load(region(name), &files_in(self.directory.path(), &region(name))).unwrap()
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn authority(&self) -> Vec<u8> {
        fs::read(self.directory.path().join("ca.pem")).unwrap()
    }
}

/// The TLS of a client that speaks these versions and trusts this authority alone.
pub fn trusting(
    authority: &[u8],
    versions: &[&'static SupportedProtocolVersion],
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
}

/// Fails the test if `future` takes longer than a slow machine could need.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("this took too long")
}

pub async fn text(body: Body) -> String {
    let Collected::Whole(bytes) = soon(collect(body, 1 << 20)).await.unwrap() else { panic!("too long") };
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub async fn piece(body: &mut Body) -> Option<Result<String, BodyError>> {
    let frame = soon(body.frame()).await?;
    Some(frame.map(|frame| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()))
}

/// A body fed through a channel; it ends when the sender is dropped.
pub fn fed() -> (mpsc::UnboundedSender<&'static str>, Body) {
    let (feed, fed) = mpsc::unbounded_channel();
    (feed, Fed(fed).boxed_unsync())
}

struct Fed(mpsc::UnboundedReceiver<&'static str>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }
}

/// The act of a raw server on each of its connections, after a request was read.
#[derive(Clone, Copy)]
pub enum Then {
    /// Write this and read the next request.
    Answer(&'static str),
    AnswerAndClose(&'static str),
    /// The same for what changes state; hang up on what only reads, and do not record it.
    AnswerChanges(&'static str),
    /// Write this, then stay silent until the client closes.
    AnswerAndHang(&'static str),
    /// Write the first, then the second again and again, with a short pause before each, for ever.
    Trickle(&'static str, &'static str),
}

/// A raw HTTP/1.1 server: its whole input, and its number of connections.
pub struct RawServer {
    pub address: String,
    pub requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
    /// Gets a message each time a connection is over, whichever side ended it.
    pub closed: mpsc::UnboundedReceiver<()>,
}

impl RawServer {
    pub async fn start(then: Then) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), then)
    }

    pub fn on(listener: TcpListener, then: Then) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let connections = Arc::<Mutex<usize>>::default();
        let (tell, closed) = mpsc::unbounded_channel();
        let (seen, count) = (requests.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let (seen, tell) = (seen.clone(), tell.clone());
                tokio::spawn(async move {
                    serve(stream, then, seen).await;
                    let _ = tell.send(());
                });
            }
        });
        Self { address, requests, connections, closed }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    pub fn headers(&self) -> Vec<BTreeMap<String, String>> {
        let of = |request: &String| {
            let pairs = request.lines().take_while(|line| !line.is_empty());
            let pairs = pairs.filter_map(|line| line.split_once(": "));
            pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect()
        };
        self.seen().iter().map(of).collect()
    }
}

async fn serve(mut stream: TcpStream, then: Then, seen: Arc<Mutex<Vec<String>>>) {
    while let Some(mut request) = read_request(&mut stream).await {
        if matches!(then, Then::AnswerChanges(_)) {
            if request.starts_with("GET ") {
                return;
            }
            // A body that streams through has no length.
            while request.contains("chunked\r\n") && !request.ends_with("\r\n0\r\n\r\n") {
                let mut piece = [0; 1024];
                let count = stream.read(&mut piece).await.unwrap_or(0);
                if count == 0 {
                    return;
                }
                request.push_str(str::from_utf8(&piece[..count]).unwrap());
            }
        }
        seen.lock().unwrap().push(request);
        match then {
            Then::Answer(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
            Then::AnswerAndClose(answer) | Then::AnswerChanges(answer) => {
                stream.write_all(answer.as_bytes()).await.unwrap();
                return;
            }
            Then::AnswerAndHang(answer) => {
                stream.write_all(answer.as_bytes()).await.unwrap();
                while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                return;
            }
            Then::Trickle(head, piece) => {
                stream.write_all(head.as_bytes()).await.unwrap();
                while stream.write_all(piece.as_bytes()).await.is_ok() {
                    wait::pause(Duration::from_millis(20)).await;
                }
                return;
            }
        }
    }
}

/// A head and as many bytes of body as its `Content-Length` says; `None` when the client closed.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    let mut wanted = None;
    while wanted.is_none_or(|wanted| read.len() < wanted) {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&piece[..count]);
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            wanted = Some(end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap()));
        }
    }
    Some(String::from_utf8(read).unwrap())
}

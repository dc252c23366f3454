//! A public listener with a service that records its requests, and raw clients of it. A client
//! library would tidy up the very bytes in question.

use crate::net::frames::Raw;
use crate::net::support::*;
use onceway::ports::body::{Collected, collect};
use onceway::server::PublicService;
use onceway::server::listener_kind::Door;
use onceway::server::public::listen;
use tokio::io::AsyncRead;

/// In bytes: more than any socket buffers.
pub const BIG: usize = 64 << 20;

pub struct Service {
    pub seen: Mutex<Vec<String>>,
    /// The events inside: a request that arrived, a body that broke, a request that was dropped.
    events: mpsc::UnboundedSender<&'static str>,
    /// A permit lets one request to `/wait` go on.
    pub gate: Semaphore,
    pub feeds: Mutex<Vec<mpsc::UnboundedSender<&'static str>>>,
}

struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Service {
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("over");
    }
}

impl PublicService for Service {
    async fn call(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let over = Dropped(self.events.clone());
        let (head, mut body) = request.into_parts();
        self.seen.lock().unwrap().push(format!("{} {}", head.method, head.uri));
        let _ = self.events.send("arrived");
        let answer = match head.uri.path() {
            "/wait" => {
                self.gate.acquire().await.unwrap().forget();
                full("waited")
            }
            "/stream" => {
                // The first piece of the answer leaves before the request has ended.
                let (feed, answer) = fed();
                feed.send("early;").unwrap();
                tokio::spawn(async move {
                    while body.frame().await.is_some_and(|frame| frame.is_ok()) {}
                    let _ = feed.send("late;");
                });
                answer
            }
            "/feed" => {
                let (feed, answer) = fed();
                self.feeds.lock().unwrap().push(feed);
                answer
            }
            "/refuse" => {
                let mut refused = Response::new(full("refused"));
                *refused.status_mut() = StatusCode::UNAUTHORIZED;
                return refused;
            }
            "/big" => full(vec![b'x'; BIG]),
            "/headers" => {
                drop(collect(body, 1000).await);
                let line = |(name, value): (&HeaderName, &HeaderValue)| {
                    format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))
                };
                let mut lines: Vec<String> = head.headers.iter().map(line).collect();
                lines.sort();
                full(lines.concat())
            }
            _ => match collect(body, 1000).await {
                Ok(Collected::Whole(bytes)) => full(bytes),
                Ok(Collected::Over(_, _)) => full("over"),
                Err(_) => {
                    let _ = self.events.send("broken body");
                    full("broken")
                }
            },
        };
        drop(over);
        let mut response = Response::new(answer);
        response.headers_mut().insert("keep-alive", "timeout=9".parse().unwrap());
        response
    }
}

pub struct Running {
    pub address: String,
    pub service: Arc<Service>,
    pub events: mpsc::UnboundedReceiver<&'static str>,
    pub listeners: Listeners,
}

impl Running {
    pub async fn say(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(bytes.as_ref()).await.unwrap();
        stream
    }

    pub async fn comes(&mut self, event: &str) {
        assert_eq!(soon(self.events.recv()).await, Some(event));
    }
}

pub async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

pub async fn http2() -> (Running, Raw) {
    let running = run(PublicLimits::default()).await;
    let raw = Raw::connect(&running.address, &[]).await;
    (running, raw)
}

pub async fn run(limits: PublicLimits) -> Running {
    run_through(limits, PATIENCE, None, Edge::default()).await
}

/// Runs it with a grace period, over TLS or not, and behind what stands before it.
pub async fn run_through(
    limits: PublicLimits,
    grace: Duration,
    tls: Option<ServerConfig>,
    edge: Edge,
) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, events) = mpsc::unbounded_channel();
    let service = Arc::new(Service {
        seen: Mutex::default(),
        events: tell,
        gate: Semaphore::new(0),
        feeds: Mutex::default(),
    });
    let mut listeners = Listeners::new(grace);
    listen(
        &mut listeners,
        listener,
        tls.map(Into::into),
        service.clone(),
        limits,
        Door::Public(None, Arc::new(edge)),
        &Arc::default(),
    );
    Running { address, service, events, listeners }
}

pub async fn talk(address: &str, bytes: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    String::from_utf8(until_cut(&mut stream).await).unwrap()
}

/// All that comes until the server closes. A reset is an end, too.
pub async fn until_cut(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = soon(stream.read_to_end(&mut answer)).await;
    answer
}

/// Sends a request over a new HTTP/1.1 connection, to see that the listener still answers.
pub async fn still_answers(address: &str) {
    let answer =
        talk(address, "POST /still HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
            .await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hi"), "{answer}");
}

pub async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = String::new();
    while !read.ends_with(end) {
        let mut piece = [0; 1024];
        let count = soon(stream.read(&mut piece)).await.unwrap();
        assert!(count > 0, "closed after {read:?}");
        read.push_str(str::from_utf8(&piece[..count]).unwrap());
    }
    read
}

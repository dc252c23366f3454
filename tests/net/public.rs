//! The public listener against raw bytes: what it refuses, what it passes on, what it does about slow clients and a stop.
//!
//! Neighbours: `server::public` has the table of checks; here stand those that need a socket. It must not use a client library,
//! which would tidy up the very bytes in question.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use onceway::ports::Body;
use onceway::ports::body::{Collected, collect, full};
use onceway::server::door::Door;
use onceway::server::public::{PublicLimits, listen};
use onceway::server::{Listeners, PublicService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use crate::support::{fed, soon};

/// Answers by path, and tells what it saw.
struct Service {
    seen: Mutex<Vec<String>>,
    /// What happened inside: a request that arrived, a body that broke, a request that was dropped.
    events: mpsc::UnboundedSender<&'static str>,
    /// A permit lets one request to `/wait` go on.
    gate: Semaphore,
    feeds: Mutex<Vec<mpsc::UnboundedSender<&'static str>>>,
}

struct Dropped(mpsc::UnboundedSender<&'static str>);

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

struct Running {
    address: String,
    service: Arc<Service>,
    events: mpsc::UnboundedReceiver<&'static str>,
    listeners: Listeners,
}

async fn run(limits: PublicLimits) -> Running {
    run_at(limits, Door::Public(None)).await
}

async fn run_at(limits: PublicLimits, door: Door) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, events) = mpsc::unbounded_channel();
    let service = Arc::new(Service {
        seen: Mutex::default(),
        events: tell,
        gate: Semaphore::new(0),
        feeds: Mutex::default(),
    });
    let mut listeners = Listeners::new(Duration::from_secs(20));
    listen(&mut listeners, listener, service.clone(), limits, door);
    Running { address, service, events, listeners }
}

/// Writes `bytes`, then reads until the server closes.
async fn talk(address: &str, bytes: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is an end, too.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = String::new();
    while !read.ends_with(end) {
        let mut piece = [0; 1024];
        let count = soon(stream.read(&mut piece)).await.unwrap();
        assert!(count > 0, "closed after {read:?}");
        read.push_str(str::from_utf8(&piece[..count]).unwrap());
    }
    read
}

#[tokio::test]
async fn framing_in_doubt_is_refused_and_the_connection_closed() {
    let running = run(PublicLimits::default()).await;
    let many: String = (0..101).map(|number| format!("x-{number}: 1\r\n")).collect();
    let large = format!("x-large: {}\r\n", "a".repeat(70_000));
    let table = [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned(), "400"),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nx : 1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nx: 1\r\n folded\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: idempotency-key\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n".to_owned(), "400"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_owned(), "501"),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "501"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{large}\r\n"), "431"),
    ];
    for (bytes, status) in table {
        let start: String = bytes.chars().take(120).collect();
        let answer =
            talk(&running.address, &format!("{bytes}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{start:?} got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{start:?} got {answer:?}");
    }
    assert_eq!(running.service.seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_length_given_twice_in_two_ways_ends_the_connection() {
    // hyper has dropped the Content-Length before anybody can look; it must at least not read on.
    let running = run(PublicLimits::default()).await;
    let both = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
                GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = talk(&running.address, both).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(!running.service.seen.lock().unwrap().iter().any(|seen| seen.contains("smuggled")));
}

#[tokio::test]
async fn requests_follow_each_other_and_stream_both_ways() {
    let running = run(PublicLimits::default()).await;
    let mut stream = TcpStream::connect(&running.address).await.unwrap();
    stream.write_all(b"POST /a?b=%2F HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
    let answer = read_until(&mut stream, "hi").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && !answer.contains("keep-alive"), "{answer}");
    stream
        .write_all(b"POST /stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        .await
        .unwrap();
    read_until(&mut stream, "early;\r\n").await;
    stream.write_all(b"1\r\nb\r\n0\r\n\r\n").await.unwrap();
    read_until(&mut stream, "late;\r\n0\r\n\r\n").await;
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .await
        .unwrap();
    read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await;
    stream.write_all(b"ho").await.unwrap();
    read_until(&mut stream, "ho").await;
    let seen = running.service.seen.lock().unwrap().clone();
    assert_eq!(seen, ["POST /a?b=%2F", "POST /stream", "POST /"]);
}

#[tokio::test]
async fn slow_clients_are_cut() {
    let limits = PublicLimits {
        head_time: Duration::from_millis(200),
        body_stall: Duration::from_millis(200),
        ..PublicLimits::default()
    };
    let mut running = run(limits).await;
    let answer = talk(&running.address, "GET / HTTP/1.1\r\nHost:").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(running.service.seen.lock().unwrap().len(), 0);
    let stalled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi";
    let answer = talk(&running.address, stalled).await;
    assert!(answer.ends_with("broken"), "{answer}");
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    assert_eq!(soon(running.events.recv()).await, Some("broken body"));
}

#[tokio::test]
async fn a_client_that_hangs_up_drops_its_request() {
    let mut running = run(PublicLimits::default()).await;
    let mut stream = TcpStream::connect(&running.address).await.unwrap();
    stream.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    drop(stream);
    assert_eq!(soon(running.events.recv()).await, Some("over"));
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let mut running = run(PublicLimits { connections: 1, ..PublicLimits::default() }).await;
    let mut first = TcpStream::connect(&running.address).await.unwrap();
    first.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    let mut second = TcpStream::connect(&running.address).await.unwrap();
    second.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), running.events.recv()).await;
    assert!(early.is_err(), "the second connection was served beside the first");
    drop(first);
    assert_eq!(soon(running.events.recv()).await, Some("over"));
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    running.service.gate.add_permits(1);
    read_until(&mut second, "waited").await;
}

#[tokio::test]
async fn stopping_lets_requests_finish_and_takes_no_more() {
    let mut running = run(PublicLimits::default()).await;
    let mut idle = TcpStream::connect(&running.address).await.unwrap();
    idle.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
    read_until(&mut idle, "hi").await;
    let mut busy = TcpStream::connect(&running.address).await.unwrap();
    busy.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while running.service.seen.lock().unwrap().len() < 2 {
        soon(running.events.recv()).await;
    }
    let stopping = tokio::spawn(running.listeners.stop());
    // The idle connection is closed, new ones are refused, the busy one is waited for.
    let mut rest = Vec::new();
    soon(idle.read_to_end(&mut rest)).await.unwrap();
    let refused = async { while TcpStream::connect(&running.address).await.is_ok() {} };
    soon(refused).await;
    assert!(!stopping.is_finished());
    running.service.gate.add_permits(1);
    let mut answer = String::new();
    soon(busy.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("waited"), "{answer}");
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn the_grace_period_is_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, mut events) = mpsc::unbounded_channel();
    let service = Arc::new(Service {
        seen: Mutex::default(),
        events: tell,
        gate: Semaphore::new(0),
        feeds: Mutex::default(),
    });
    let mut listeners = Listeners::new(Duration::from_millis(100));
    listen(&mut listeners, listener, service.clone(), PublicLimits::default(), Door::Public(None));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /feed HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while service.feeds.lock().unwrap().is_empty() {
        soon(events.recv()).await;
    }
    soon(listeners.stop()).await;
    // Cut: the answer has no end.
    let mut answer = Vec::new();
    let _ = soon(stream.read_to_end(&mut answer)).await;
    assert!(!String::from_utf8(answer).unwrap().ends_with("0\r\n\r\n"));
}

//! The cost of a request that passes, in what does not flap: allocations, and connections to the
//! upstream. The gateway stands as `run` makes it, without its loops.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use allocation_counter::measure;
use onceway_lab::files::{self, RegionFile};
use onceway_lab::ports::RegionPorts;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::*;
use crate::config::listen::PublicLimits;
use crate::gateway::credentials::operators::Operators;

const ROUTES: &str =
    "[[route]]\nname = \"blobs\"\nmethods = [\"POST\"]\npath = \"/v1/blobs\"\nkey = \"off\"\n";
const REQUEST: &[u8] = b"POST /v1/blobs HTTP/1.1\r\nHost: api.example\r\nContent-Type: text/plain\r\nAuthorization: Bearer x\r\nIdempotency-Key: 5f0c\r\nContent-Length: 4\r\n\r\nbody";
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nanswer";
/// Requests before the count begins: connections, buffers and tables are made by the first ones.
const FIRST: usize = 20;
const COUNTED: usize = 200;
/// Most allocations of one passed request and its answer. Measured: 34.
const MOST: u64 = 40;
/// Most bytes of them. Measured: 26,800, of which hyper's two buffers are 16,384.
const MOST_BYTES: u64 = 32 * 1024;

fn config(folder: &Path, upstream: u16) -> Config {
    let name = RegionName::parse("here").unwrap();
    let names = std::slice::from_ref(&name);
    files::write_shared(folder, names).unwrap();
    let certificates = folder.join("certificates");
    std::fs::create_dir(&certificates).unwrap();
    crate::adapters::issue::generate(names).unwrap().write(&certificates).unwrap();
    files::write(folder, "routes.toml", ROUTES).unwrap();
    // Nothing listens on the others, nor is asked.
    let ports = RegionPorts { public: 1, admin: 2, peer: 3, upstream, postgres: 5 };
    let file =
        RegionFile { name: &name, ports, peers: Vec::new(), publishers: Vec::new(), endpoints: Vec::new() };
    Config::load_watched(&files::write_region(folder, &file).unwrap()).0.unwrap()
}

/// Reads up to these last bytes. `false` at the end of the stream.
fn read_to(stream: &mut TcpStream, end: &[u8]) -> bool {
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    while !seen.ends_with(end) {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return false,
            Ok(count) => seen.extend_from_slice(&piece[..count]),
        }
    }
    true
}

/// Sends requests one after the other from a thread of its own, while this one runs the gateway.
fn ask(runtime: &Runtime, mut client: TcpStream, requests: usize) -> TcpStream {
    let (done, ended) = oneshot::channel();
    let asking = thread::spawn(move || {
        for _ in 0..requests {
            client.write_all(REQUEST).unwrap();
            assert!(read_to(&mut client, b"answer"));
        }
        done.send(()).unwrap();
        client
    });
    runtime.block_on(ended).unwrap();
    asking.join().unwrap()
}

#[test]
fn a_passed_request_allocates_little_and_makes_no_connection() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = config(folder.path(), upstream.local_addr().unwrap().port());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    thread::spawn(move || {
        for stream in upstream.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            let mut stream = stream.unwrap();
            thread::spawn(move || while read_to(&mut stream, b"body") && stream.write_all(ANSWER).is_ok() {});
        }
    });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (listeners, address) = runtime.block_on(async {
        let ports = ports(&config, &Certified::read(&config).unwrap(), Versions::OURS).unwrap();
        let gateway = Gateway::new(ports, config.settings(), config.shared.view()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listeners = Listeners::new(CLOSE_WITHIN);
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let operators = Admin::new(gateway.clone(), metrics, Operators::default().into());
        let (service, heads) = (Arc::new(Service(gateway, Arc::new(operators))), Arc::default());
        let (limits, door) = (PublicLimits::default(), Door::Public(None, Arc::default()));
        public::listen(&mut listeners, listener, None, service, limits, door, &heads);
        (listeners, address)
    });
    let client = ask(&runtime, TcpStream::connect(address).unwrap(), FIRST);
    let mut client = Some(client);
    let counted = measure(|| drop(client.take().map(|client| ask(&runtime, client, COUNTED))));
    let [each, bytes] = [counted.count_total, counted.bytes_total].map(|all| all / COUNTED as u64);
    assert!(each <= MOST && bytes <= MOST_BYTES, "{each} allocations of {bytes} bytes for each request");
    assert_eq!(connections.load(Ordering::SeqCst), 1, "connections to the upstream");
    runtime.block_on(listeners.stop());
}

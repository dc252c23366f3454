//! Many useless sockets against a real gateway: health checks are still answered, and memory is
//! bounded.
//!
//! Sockets are raw, with small buffers. `net/slow` has the public listener's deadlines one by one.

use crate::support::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The patience of a probe: less than the 10 s after which a silent socket loses its place anyhow.
const PROBE: Duration = Duration::from_secs(8);

async fn small(address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    timeout(PATIENCE, socket.connect(address.parse().unwrap())).await.expect("a connection").unwrap()
}

async fn probe(address: &str, path: &str) -> Option<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
    };
    timeout(PROBE, asked).await.ok().flatten()
}

/// Takes this address's places with sockets that read nothing. Others replace ended ones.
async fn take_all(address: &str, deaf: &mut Vec<TcpStream>) {
    let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let until = Instant::now() + BOUND;
    loop {
        let asked = probe(address, "/v1/status").await;
        let said = asked.as_ref().map_or("", |(_, answer)| answer);
        if said.starts_with("HTTP/1.1 503") && said.contains("all places of the admin listener") {
            return;
        }
        assert!(Instant::now() < until, "the places are not taken: {said:?}");
        for number in 0..100 {
            let mut stream = small(address).await;
            // A few ask for more than the kernel buffers. The others just hold their places.
            let asked = ask.repeat(if number < 5 { 40 } else { 1 });
            // A socket beyond the address's places is refused, and perhaps closed by now.
            let _ = stream.write_all(asked.as_bytes()).await;
            deaf.push(stream);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_sockets_do_not_block_health_checks() {
    let solo = Solo::start(&routes(), None).await;
    let admin = solo.region.admin();
    let address = admin.strip_prefix("http://").unwrap().to_owned();
    let mut deaf = Vec::new();
    for _ in 0..20 {
        take_all(&address, &mut deaf).await;
        assert_eq!(probe(&address, "/healthz").await.map(|(status, _)| status), Some(200));
        assert!(probe(&address, "/readyz").await.is_some());
    }
    // Silent sockets keep the places of health checks only until others come.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(small(&address).await);
    }
    assert_eq!(probe(&address, "/healthz").await.map(|(status, _)| status), Some(200));
    // Their time to read ends, and so do they. The question before may take the first place.
    until("the places to be free again", async || {
        probe(&address, "/metrics").await.is_some_and(|(status, answer)| {
            status == 200 && answer.contains("onceway_connections_cut_total{reason=\"stalled\"}")
        })
    })
    .await;
    drop((deaf, silent));
}

/// The number of begun heads, if as many files may be open.
const HEADS: u64 = 2_000;
/// The bytes that they may hold in the gateway beyond 4 KiB each.
const ROOM_MIB: u64 = 16;

fn kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_unfinished_heads_are_held_within_one_budget() {
    // Other suites of this process need sockets, too.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let count = HEADS.min(maximum.unwrap_or(u64::MAX).saturating_sub(4_000));
    let limits = format!(
        "[listen.limits]\nconnections = 12000\nconnections_per_ip = 12000\nheads = \"{ROOM_MIB}MiB\"\n"
    );
    let solo = Solo::start_adding(&routes(), None, &limits).await;
    let address = solo.public().strip_prefix("http://").unwrap().to_owned();
    let pid = solo.region.process().unwrap().pid();
    let before = kib(pid, "VmHWM");
    let head = format!("GET /v1/notes HTTP/1.1\r\nHost: a\r\nx: {}", "x".repeat(63 << 10));
    let mut all = Vec::new();
    for number in 0..count {
        let mut stream = timeout(PATIENCE, TcpStream::connect(&address)).await.unwrap().unwrap();
        // A connection that was refused meanwhile may be closed already.
        let _ = timeout(PATIENCE, stream.write_all(head.as_bytes())).await.expect("it is read");
        all.push(stream);
        if number % 200 == 0 {
            let key = key("beside");
            // A head of the usual size always has room. Another refusal is of a busy machine.
            until("the answer to a usual head", async || {
                let answer = ask(post(&solo.public(), "/v1/charges", &key, BODY)).await;
                assert!(!answer.text().contains("overloaded"), "{}", answer.text());
                answer.status == StatusCode::CREATED
            })
            .await;
            assert_eq!(effects(&solo.ledger, &key), 1);
        }
    }
    let grown = (kib(pid, "VmHWM") - before) / 1024;
    // Beyond the budget: 4 KiB of each head, the connection itself, and the last refusals.
    let bound = ROOM_MIB + count * 12 / 1024 + 32;
    println!("{count} unfinished heads of 63 KiB: {grown} MiB more, at most {bound}");
    assert!(grown <= bound, "{grown} MiB for {count} heads, more than {bound}");
    let mut answer = String::new();
    let last = all.last_mut().unwrap();
    timeout(PATIENCE, last.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("overloaded"), "{answer}");
}

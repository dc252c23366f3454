//! One TCP address in front of several gateways of a region. Each connection goes to the next that
//! is ready and accepts; if none is ready, to any that accepts; else it is reset. The servers of a
//! `patroni` are balanced strictly: only the primary is ready.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::ports::local;
use super::{accept, wait};
use onceway_client::Ask;

const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// Time limit of a look: a gateway that takes longer is not ready.
const LOOKS_WITHIN: Duration = Duration::from_secs(1);

/// Readiness of a region's gateways, by number. Dropping it ends the looks.
pub struct Readiness {
    ready: Arc<Vec<AtomicBool>>,
    strict: bool,
    _looking: JoinSet<()>,
}

impl Readiness {
    /// Looks at these URLs from now on. None is ready before its first look. If `strict`, who is
    /// not ready gets no connection.
    pub fn watch(urls: impl IntoIterator<Item = String>, strict: bool) -> Readiness {
        let urls: Vec<String> = urls.into_iter().collect();
        let ready: Arc<Vec<AtomicBool>> = Arc::new(urls.iter().map(|_| AtomicBool::default()).collect());
        let _looking = (0..).zip(urls).map(|(number, url)| look(ready.clone(), number, url)).collect();
        Readiness { ready, strict, _looking }
    }
}

async fn look(ready: Arc<Vec<AtomicBool>>, number: usize, url: String) {
    let asked = Ask::get(url);
    loop {
        let is_ready = asked.send(LOOKS_WITHIN).await.is_ok_and(|answer| answer.status == 200);
        ready[number].store(is_ready, Ordering::SeqCst);
        wait::pause(LOOKS_EVERY).await;
    }
}

/// Listens on this port of 127.0.0.1 for these targets, in the order of `readiness`.
pub async fn start(port: u16, targets: Vec<SocketAddr>, readiness: &Readiness) -> Result<JoinSet<()>> {
    let listener = TcpListener::bind(local(port)).await;
    let listener = listener.with_context(|| format!("cannot bind port {port} of a balancer"))?;
    let (targets, ready) = (Arc::<[SocketAddr]>::from(targets), readiness.ready.clone());
    let (next, strict) = (Arc::new(AtomicUsize::new(0)), readiness.strict);
    Ok(accept(listener, move |client| carry(client, targets.clone(), ready.clone(), strict, next.clone())))
}

async fn carry(
    mut client: TcpStream,
    targets: Arc<[SocketAddr]>,
    ready: Arc<Vec<AtomicBool>>,
    strict: bool,
    next: Arc<AtomicUsize>,
) {
    let first = next.fetch_add(1, Ordering::SeqCst);
    let turn = (0..targets.len()).map(|step| (first + step) % targets.len());
    let (up, down): (Vec<_>, Vec<_>) = turn.partition(|number| ready[*number].load(Ordering::SeqCst));
    for number in up.into_iter().chain(down.into_iter().filter(|_| !strict)) {
        let Ok(mut gateway) = TcpStream::connect(targets[number]).await else { continue };
        let _ = (client.set_nodelay(true), gateway.set_nodelay(true));
        if copy_bidirectional(&mut client, &mut gateway).await.is_err() {
            // The other end sees a reset, as it would without the balancer.
            let _ = (client.set_zero_linger(), gateway.set_zero_linger());
        }
        return;
    }
    let _ = client.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::ports;

    const BOUND: Duration = Duration::from_secs(30);

    /// A gateway that sends its name to every connection, and whose admin listener says this.
    async fn gateway(name: u8, ready: bool) -> (SocketAddr, String, [JoinHandle<()>; 2]) {
        let public = TcpListener::bind(local(0)).await.unwrap();
        let admin = TcpListener::bind(local(0)).await.unwrap();
        let addresses = (public.local_addr().unwrap(), format!("http://{}", admin.local_addr().unwrap()));
        let serving = tokio::spawn(async move {
            loop {
                public.accept().await.unwrap().0.write_all(&[name]).await.unwrap();
            }
        });
        let status = if ready { "200 OK" } else { "503 Service Unavailable" };
        let telling = tokio::spawn(async move {
            loop {
                let mut asked = admin.accept().await.unwrap().0;
                let _ = asked.read(&mut [0; 1024]).await;
                let _ = asked
                    .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
                    .await;
            }
        });
        (addresses.0, addresses.1, [serving, telling])
    }

    /// Ends a gateway. A process that another test starts at this moment has a copy of the
    /// listener, which accepts and resets until that process runs its program. A refused connection
    /// is therefore the only proof that the gateway is gone.
    async fn ends(address: SocketAddr, tasks: [JoinHandle<()>; 2]) {
        for task in tasks {
            task.abort();
            assert!(task.await.is_err());
        }
        let refused = async || Ok(TcpStream::connect(address).await.is_err().then_some(()));
        wait::for_some("a gateway to be gone", BOUND, refused).await.unwrap();
    }

    async fn reached(port: u16) -> Option<u8> {
        let mut client = TcpStream::connect(local(port)).await.unwrap();
        let mut name = [0];
        timeout(BOUND, client.read_exact(&mut name)).await.expect("nothing came").ok().map(|_| name[0])
    }

    #[tokio::test]
    async fn the_balancer_skips_gateways_that_are_not_ready() {
        let (one, two) = (gateway(b'1', true).await, gateway(b'2', true).await);
        let sick = gateway(b'3', false).await;
        let readiness =
            Readiness::watch([one.1, two.1, sick.1].map(|admin| format!("{admin}/readyz")), false);
        let port = ports::free_run(1).unwrap();
        let _balancer = super::start(port, vec![one.0, two.0, sick.0], &readiness).await.unwrap();
        let looked =
            async || Ok(readiness.ready[..2].iter().all(|is| is.load(Ordering::SeqCst)).then_some(()));
        wait::for_some("two to be ready", BOUND, looked).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..9 {
            seen.push(reached(port).await.unwrap());
        }
        assert!(seen.contains(&b'1') && seen.contains(&b'2') && !seen.contains(&b'3'), "{seen:?}");
        ends(one.0, one.2).await;
        for _ in 0..6 {
            assert_eq!(reached(port).await, Some(b'2'));
        }
        ends(two.0, two.2).await;
        assert_eq!(reached(port).await, Some(b'3'), "better one that is not ready than none");
        ends(sick.0, sick.2).await;
        assert_eq!(reached(port).await, None, "nobody is there");
    }
}

//! One TCP relay: the wire for one region's connections towards another, with faults on demand. It
//! stamps bytes with the moment they are due, and delivers them in order: a long wire carries as
//! much as a short one. The TCP handshake itself is not delayed.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{accept, wait};

const CHUNK_BYTES: usize = 16 * 1024;
/// Most chunks under way per connection and direction: 256, at most 4 MiB. Then the sender waits.
const CHUNKS_UNDER_WAY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the opener to the target.
    Forward,
    /// From the target back to the opener.
    Backward,
}

#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    delay: Duration,
    frozen: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    legs: [Leg; 2],
    cut: bool,
    /// Number of cuts so far: a connection that is older than a cut dies, even if the cut is healed
    /// before the connection looks.
    cuts: u64,
}

impl Conditions {
    fn leg(&self, direction: Direction) -> Leg {
        self.legs[direction as usize]
    }
}

/// A running relay. Dropping it closes everything. The controls act at once, and never block.
#[derive(Debug)]
pub struct Relay {
    local_addr: SocketAddr,
    conditions: watch::Sender<Conditions>,
    _accepting: JoinSet<()>,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1. `target` need not listen yet.
    pub async fn start(target: SocketAddr) -> io::Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let local_addr = listener.local_addr()?;
        let (conditions, seen) = watch::channel(Conditions::default());
        let _accepting = accept(listener, move |client| {
            let born = *seen.borrow();
            carry(client, target, born, seen.clone())
        });
        Ok(Relay { local_addr, conditions, _accepting })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub fn set_delay(&self, direction: Direction, delay: Duration) {
        self.conditions.send_modify(|now| now.legs[direction as usize].delay = delay);
    }

    /// A black hole: holds bytes of `direction` back, and connections stay. While any direction is
    /// frozen, the relay accepts new connections but does not open them to the target.
    pub fn freeze(&self, direction: Direction) {
        self.conditions.send_modify(|now| now.legs[direction as usize].frozen = true);
    }

    pub fn thaw(&self, direction: Direction) {
        self.conditions.send_modify(|now| now.legs[direction as usize].frozen = false);
    }

    /// Resets all connections, and new ones, until [`Relay::mend`]. Bytes under way are lost.
    pub fn cut(&self) {
        self.conditions.send_modify(|now| {
            now.cut = true;
            now.cuts += 1;
        });
    }

    pub fn mend(&self) {
        self.conditions.send_modify(|now| now.cut = false);
    }
}

/// The connection was reset, by one of its ends or by a cut.
struct Broken;

async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    born: Conditions,
    conditions: watch::Receiver<Conditions>,
) {
    if born.cut {
        let _ = client.set_zero_linger();
        return;
    }
    let mut watched = conditions.clone();
    let mut cut = std::pin::pin!(async move {
        let _ = watched.wait_for(|now| now.cuts != born.cuts).await;
    });
    let opened = tokio::select! {
        biased;
        () = &mut cut => Err(Broken),
        server = open(target, conditions.clone()) => server,
    };
    let Ok(mut server) = opened else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ended = {
        let (client_in, client_out) = client.split();
        let (server_in, server_out) = server.split();
        let forward = pump(client_in, server_out, Direction::Forward, conditions.clone());
        let backward = pump(server_in, client_out, Direction::Backward, conditions.clone());
        tokio::select! {
            biased;
            () = &mut cut => Err(Broken),
            ended = async { tokio::try_join!(forward, backward) } => ended.map(|_| ()),
        }
    };
    if let Err(Broken) = ended {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

async fn open(target: SocketAddr, mut conditions: watch::Receiver<Conditions>) -> Result<TcpStream, Broken> {
    // A handshake needs both directions.
    conditions.wait_for(|now| now.legs.iter().all(|leg| !leg.frozen)).await.map_err(|_| Broken)?;
    TcpStream::connect(target).await.map_err(|_| Broken)
}

enum Item {
    Data(Bytes),
    End,
    Reset,
}

/// Carries one direction of one connection until its end has been delivered.
async fn pump(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    direction: Direction,
    conditions: watch::Receiver<Conditions>,
) -> Result<(), Broken> {
    let (under_way, arriving) = mpsc::channel(CHUNKS_UNDER_WAY);
    let taking_in = take_in(from, under_way, direction, conditions.clone());
    tokio::try_join!(taking_in, deliver(arriving, to, direction, conditions)).map(|_| ())
}

async fn take_in(
    mut from: ReadHalf<'_>,
    under_way: mpsc::Sender<(Instant, Item)>,
    direction: Direction,
    conditions: watch::Receiver<Conditions>,
) -> Result<(), Broken> {
    let mut due = Instant::now();
    // Room first, bytes second: when the wire is full, bytes wait in the sender's socket.
    while let Ok(room) = under_way.reserve().await {
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        let item = match from.read_buf(&mut buffer).await {
            Ok(0) => Item::End,
            Ok(_) => Item::Data(buffer.freeze()),
            // A reset travels as bytes do: a frozen link hides it.
            Err(_) => Item::Reset,
        };
        // Never before earlier bytes, even if the delay was shortened in between.
        due = due.max(Instant::now() + conditions.borrow().leg(direction).delay);
        let more = matches!(item, Item::Data(_));
        room.send((due, item));
        if !more {
            break;
        }
    }
    Ok(())
}

async fn deliver(
    mut arriving: mpsc::Receiver<(Instant, Item)>,
    mut to: WriteHalf<'_>,
    direction: Direction,
    mut conditions: watch::Receiver<Conditions>,
) -> Result<(), Broken> {
    let mut dead = false;
    while let Some((due, item)) = arriving.recv().await {
        wait::pause_until(due).await;
        conditions.wait_for(|now| !now.leg(direction).frozen).await.map_err(|_| Broken)?;
        let taken = match item {
            Item::Reset => return Err(Broken),
            Item::Data(_) | Item::End if dead => Ok(()),
            Item::Data(bytes) => to.write_all(&bytes).await,
            Item::End => to.shutdown().await,
        };
        // A dead end takes nothing. But bytes that it sent before are still under way, and its end
        // travels behind them, the other way. Until then the relay swallows bytes for it: a reset
        // now would reach the other end before it has read the bytes under way.
        dead |= taken.is_err();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    /// A relay to a server in this test, and both ends of one connection through it.
    async fn connected() -> (Relay, TcpListener, TcpStream, TcpStream) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let relay = Relay::start(server.local_addr().unwrap()).await.unwrap();
        let mut near = TcpStream::connect(relay.local_addr()).await.unwrap();
        let (mut far, _) = server.accept().await.unwrap();
        // One byte through: the kernel accepts the connection before the relay has opened its own.
        near.write_all(b"!").await.unwrap();
        assert_eq!(receive(&mut far, 1).await, b"!");
        (relay, server, near, far)
    }

    async fn receive(from: &mut TcpStream, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        timeout(BOUND, from.read_exact(&mut bytes)).await.expect("nothing came").unwrap();
        bytes
    }

    /// True if nothing has arrived, although a later byte on a free way made the whole trip.
    fn nothing_came(from: &TcpStream) -> bool {
        from.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[tokio::test]
    async fn a_long_wire_keeps_order_and_carries_much_at_once() {
        let (relay, _server, mut near, mut far) = connected().await;
        relay.set_delay(Direction::Forward, Duration::from_millis(50));
        let sent: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_be_bytes()).collect();
        let expected = sent.clone();
        let sending = tokio::spawn(async move {
            for piece in sent.chunks(50_000) {
                near.write_all(piece).await.unwrap();
            }
            near.shutdown().await.unwrap();
            near
        });
        let start = Instant::now();
        let mut received = Vec::new();
        timeout(BOUND, far.read_to_end(&mut received)).await.unwrap().unwrap();
        assert!(received == expected, "bytes lost or out of order");
        // 12 MB in pieces of at most 16 KiB, one per delay, would take 36 s.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(18), "the delay bounds the throughput: {took:?}");
        drop(sending.await.unwrap());
    }

    #[tokio::test]
    async fn a_cut_resets_all_connections_until_mended() {
        let (relay, server, mut near, mut far) = connected().await;
        relay.cut();
        for end in [&mut near, &mut far] {
            let error = timeout(BOUND, end.read(&mut [0])).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        let mut refused = TcpStream::connect(relay.local_addr()).await.unwrap();
        assert!(timeout(BOUND, refused.read(&mut [0])).await.unwrap().is_err());

        relay.mend();
        let mut near = TcpStream::connect(relay.local_addr()).await.unwrap();
        let (mut far, _) = timeout(BOUND, server.accept()).await.unwrap().unwrap();
        near.write_all(b"again").await.unwrap();
        assert_eq!(receive(&mut far, 5).await, b"again");
        // Mended at once, it still resets.
        relay.cut();
        relay.mend();
        assert!(timeout(BOUND, near.read(&mut [0])).await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_freeze_hides_the_death_of_an_end_until_the_heal() {
        let (relay, server, mut near, far) = connected().await;
        relay.freeze(Direction::Backward);
        far.set_zero_linger().unwrap();
        drop(far);
        // Opened during the freeze, it is accepted and stays unopened on the far side.
        let mut second = TcpStream::connect(relay.local_addr()).await.unwrap();
        second.write_all(b"early").await.unwrap();
        assert!(nothing_came(&near));
        relay.thaw(Direction::Backward);
        assert!(timeout(BOUND, near.read(&mut [0])).await.unwrap().is_err());
        let (mut far, _) = timeout(BOUND, server.accept()).await.unwrap().unwrap();
        assert_eq!(receive(&mut far, 5).await, b"early");
    }

    #[tokio::test]
    async fn ends_are_passed_on_one_way_at_a_time() {
        let (_relay, _server, mut near, mut far) = connected().await;
        near.write_all(b"last words").await.unwrap();
        near.shutdown().await.unwrap();
        let mut heard = Vec::new();
        timeout(BOUND, far.read_to_end(&mut heard)).await.unwrap().unwrap();
        assert_eq!(heard, b"last words");
        far.write_all(b"answer").await.unwrap();
        drop(far);
        let mut answer = Vec::new();
        timeout(BOUND, near.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert_eq!(answer, b"answer");
    }

    #[tokio::test]
    async fn bytes_sent_before_a_death_still_arrive() {
        let (relay, _server, mut near, mut far) = connected().await;
        relay.set_delay(Direction::Backward, Duration::from_millis(400));
        far.write_all(b"under way").await.unwrap();
        // Unread bytes make the kernel reset instead of end.
        near.write_all(b"unread").await.unwrap();
        far.readable().await.unwrap();
        drop(far);
        for _ in 0..8 {
            near.write_all(b"heard?").await.unwrap();
            wait::pause(Duration::from_millis(25)).await;
        }
        assert_eq!(receive(&mut near, 9).await, b"under way");
    }

    #[tokio::test]
    async fn a_target_that_refuses_resets_the_client() {
        // Bound and not listening: nobody else gets the port, and connections are refused.
        let absent = tokio::net::TcpSocket::new_v4().unwrap();
        absent.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let relay = Relay::start(absent.local_addr().unwrap()).await.unwrap();
        let mut near = TcpStream::connect(relay.local_addr()).await.unwrap();
        assert!(timeout(BOUND, near.read(&mut [0])).await.unwrap().is_err());
    }
}

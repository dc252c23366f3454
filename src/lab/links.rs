//! The network between the regions of a fleet: two [`Relay`]s for every ordered pair, one for peer
//! calls and one for replication. A relay of (a, b) carries the connections that a opens towards b.
//! Bytes from a to b travel forward on it, and backward on that of (b, a).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::relay::{Direction, Relay};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    Peer,
    /// Postgres to Postgres (the subscriber opens it).
    Replication,
}

/// Addresses of a region's listeners. The listeners need not exist yet.
#[derive(Clone, Copy, Debug)]
pub struct Endpoints {
    pub peer: SocketAddr,
    pub replication: SocketAddr,
}

/// All links. Regions have the numbers of their endpoints' order. The controls act at once and
/// never block; they fail for one region, or for one that does not exist. Delays survive cut,
/// freeze and heal.
#[derive(Debug)]
pub struct Links {
    links: BTreeMap<(usize, usize), [Relay; 2]>,
}

impl Links {
    /// Starts a relay per ordered pair and kind, each on a free port of 127.0.0.1, without delay.
    pub async fn start(endpoints: &[Endpoints]) -> Result<Links> {
        let mut links = BTreeMap::new();
        for from in 0..endpoints.len() {
            for (to, target) in endpoints.iter().enumerate().filter(|(to, _)| *to != from) {
                let link = [Relay::start(target.peer).await?, Relay::start(target.replication).await?];
                links.insert((from, to), link);
            }
        }
        Ok(Links { links })
    }

    pub fn address(&self, from: usize, to: usize, kind: LinkKind) -> Result<SocketAddr> {
        Ok(self.link(from, to)?[kind as usize].local_addr())
    }

    fn link(&self, from: usize, to: usize) -> Result<&[Relay; 2]> {
        let link = self.links.get(&(from, to));
        link.with_context(|| format!("there is no link from region {from} to region {to}"))
    }

    /// Resets connections, and new ones as they come. One way: only those that `a` opens towards
    /// `b` (peer calls of a, and a's subscription to b).
    pub fn cut(&self, a: usize, b: usize, oneway: bool) -> Result<()> {
        self.opened(a, b, oneway)?.for_each(Relay::cut);
        Ok(())
    }

    /// A black hole: connections stay, and no byte arrives. One way: holds back bytes from `a` to
    /// `b` only, whichever region opened the connection.
    pub fn freeze(&self, a: usize, b: usize, oneway: bool) -> Result<()> {
        self.travelling(a, b, oneway)?.for_each(|(relay, direction)| relay.freeze(direction));
        Ok(())
    }

    /// Ends cut and freeze; the bytes held back arrive. One way: from `a` to `b` only.
    pub fn heal(&self, a: usize, b: usize, oneway: bool) -> Result<()> {
        self.opened(a, b, oneway)?.for_each(Relay::mend);
        self.travelling(a, b, oneway)?.for_each(|(relay, direction)| relay.thaw(direction));
        Ok(())
    }

    /// Sets the delay of bytes to `rtt` / 2 in each direction from now on. One way: from `a` to `b`
    /// only, so an asymmetric link takes two calls.
    pub fn set_rtt(&self, a: usize, b: usize, rtt: Duration, oneway: bool) -> Result<()> {
        self.travelling(a, b, oneway)?.for_each(|(relay, direction)| relay.set_delay(direction, rtt / 2));
        Ok(())
    }

    /// Holds back `a`'s replication from `b`, until [`Links::heal`]. Peer calls go on.
    pub fn freeze_rows(&self, a: usize, b: usize) -> Result<()> {
        let replication = &self.link(a, b)?[LinkKind::Replication as usize];
        replication.freeze(Direction::Forward);
        replication.freeze(Direction::Backward);
        Ok(())
    }

    /// Relays of connections opened by `a` towards `b` and, unless `oneway`, the other way.
    fn opened(&self, a: usize, b: usize, oneway: bool) -> Result<impl Iterator<Item = &Relay>> {
        let (there, back) = (self.link(a, b)?, self.link(b, a)?);
        Ok(there.iter().chain(back.iter().filter(move |_| !oneway)))
    }

    /// Every way that bytes take from `a` to `b` and, unless `oneway`, back.
    fn travelling(
        &self,
        a: usize,
        b: usize,
        oneway: bool,
    ) -> Result<impl Iterator<Item = (&Relay, Direction)>> {
        use Direction::{Backward, Forward};
        let (there, back) = (self.link(a, b)?, self.link(b, a)?);
        let ways = [(there, Forward), (back, Backward), (there, Backward), (back, Forward)];
        let ways = ways.into_iter().take(if oneway { 2 } else { 4 });
        Ok(ways.flat_map(|(relays, direction)| relays.iter().map(move |relay| (relay, direction))))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    /// Three regions whose peer listeners belong to the test.
    struct Net {
        links: Links,
        listeners: Vec<TcpListener>,
    }

    impl Net {
        async fn start() -> Net {
            let (mut listeners, mut endpoints) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                let address = listener.local_addr().unwrap();
                endpoints.push(Endpoints { peer: address, replication: address });
                listeners.push(listener);
            }
            Net { links: Links::start(&endpoints).await.unwrap(), listeners }
        }

        async fn connect(&self, from: usize, to: usize, kind: LinkKind) -> (TcpStream, TcpStream) {
            let near = TcpStream::connect(self.links.address(from, to, kind).unwrap()).await.unwrap();
            let (far, _) = timeout(BOUND, self.listeners[to].accept()).await.unwrap().unwrap();
            (near, far)
        }
    }

    async fn trip(from: &mut TcpStream, to: &mut TcpStream) -> Duration {
        let start = Instant::now();
        from.write_all(b"x").await.unwrap();
        timeout(BOUND, to.read_exact(&mut [0])).await.expect("nothing came").unwrap();
        start.elapsed()
    }

    async fn is_reset(end: &mut TcpStream) -> bool {
        timeout(BOUND, end.read(&mut [0])).await.unwrap().is_err()
    }

    fn nothing_came(end: &TcpStream) -> bool {
        end.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    #[tokio::test]
    async fn every_ordered_pair_and_kind_has_an_address_of_its_own() {
        let net = Net::start().await;
        let mut seen = std::collections::BTreeSet::new();
        for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
            for kind in [LinkKind::Peer, LinkKind::Replication] {
                seen.insert(net.links.address(from, to, kind).unwrap());
            }
        }
        assert_eq!(seen.len(), 12);
        let error = net.links.cut(1, 1, false).unwrap_err().to_string();
        assert_eq!(error, "there is no link from region 1 to region 1");
        assert!(net.links.set_rtt(0, 3, BOUND, true).is_err());
    }

    #[tokio::test]
    async fn a_one_way_cut_spares_what_the_other_side_opened() {
        let net = Net::start().await;
        let (mut ours, _far) = net.connect(0, 1, LinkKind::Peer).await;
        let (mut subscription, _publisher) = net.connect(0, 1, LinkKind::Replication).await;
        let (mut theirs, mut at_ours) = net.connect(1, 0, LinkKind::Peer).await;
        net.links.cut(0, 1, true).unwrap();
        assert!(is_reset(&mut ours).await && is_reset(&mut subscription).await);
        trip(&mut theirs, &mut at_ours).await;
        net.links.cut(0, 1, false).unwrap();
        assert!(is_reset(&mut theirs).await);
        net.links.heal(0, 1, false).unwrap();
        let (mut ours, mut far) = net.connect(0, 1, LinkKind::Peer).await;
        trip(&mut ours, &mut far).await;
    }

    #[tokio::test]
    async fn a_one_way_freeze_holds_bytes_whoever_opened_the_connection() {
        let net = Net::start().await;
        let (mut a_end, mut b_end) = net.connect(0, 1, LinkKind::Peer).await;
        let (mut b_opened, mut a_accepted) = net.connect(1, 0, LinkKind::Replication).await;
        net.links.freeze(0, 1, true).unwrap();
        a_end.write_all(b"x").await.unwrap();
        a_accepted.write_all(b"x").await.unwrap();
        for _ in 0..10 {
            trip(&mut b_end, &mut a_end).await;
            trip(&mut b_opened, &mut a_accepted).await;
            assert!(nothing_came(&b_end) && nothing_came(&b_opened));
        }
        net.links.heal(0, 1, true).unwrap();
        timeout(BOUND, b_end.read_exact(&mut [0])).await.unwrap().unwrap();
        timeout(BOUND, b_opened.read_exact(&mut [0])).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_round_trip_takes_the_rtt_and_survives_a_heal() {
        let net = Net::start().await;
        let rtt = Duration::from_millis(80);
        net.links.set_rtt(0, 1, rtt, false).unwrap();
        net.links.freeze(0, 1, false).unwrap();
        net.links.heal(0, 1, false).unwrap();
        let (mut near, mut far) = net.connect(0, 1, LinkKind::Peer).await;
        assert!(trip(&mut near, &mut far).await >= rtt / 2);
        assert!(trip(&mut far, &mut near).await >= rtt / 2);
        net.links.set_rtt(0, 1, rtt * 2, true).unwrap();
        let (mut near, mut far) = net.connect(1, 0, LinkKind::Replication).await;
        assert!(trip(&mut far, &mut near).await >= rtt, "the new delay, on b's connection too");
        assert!(trip(&mut near, &mut far).await >= rtt / 2, "the other direction keeps its own");
    }
}

//! The ports of a fleet, and a check before the start that all are free. Region number i has base +
//! 10·i: +1 public, +2 admin, +3 peer, +4 sample upstream, +5 Postgres. Control has base + 0. In a
//! region of several gateways the first three are its balancer's, and theirs lie behind all
//! regions'.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::wait;

const LOWEST: u16 = 11_000;
/// Number of ports to choose from: all below 32768, where the kernel's range for outgoing
/// connections begins. One of those connections would take a port between the look and its use.
const SPREAD: u16 = 20_000;

/// Longer than a process takes from its fork to its program, on a busy machine.
const COPIED_FOR: Duration = Duration::from_millis(500);

pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The first of `count` ports in a row that are free on 127.0.0.1 now. Each call of a process
/// searches further on than the call before. Error if no such row exists.
pub fn free_run(count: u16) -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(40);
    for _ in 0..500 {
        let step = NEXT.fetch_add(u32::from(count.max(10)), Ordering::Relaxed);
        let base = LOWEST + u16::try_from(start.wrapping_add(step) % u32::from(SPREAD))?;
        if (base..base + count).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return Ok(base);
        }
    }
    bail!("no {count} free ports in a row between {LOWEST} and {}", LOWEST + SPREAD)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionPorts {
    pub public: u16,
    pub admin: u16,
    pub peer: u16,
    pub upstream: u16,
    pub postgres: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPorts {
    pub control: u16,
    pub regions: Vec<RegionPorts>,
    /// Its ports with each gateway's own listeners, by region; none for a region of one gateway.
    pub gateways: Vec<Vec<RegionPorts>>,
}

impl FleetPorts {
    /// Lays out the ports. Error if they do not fit below 65536, or `base` is 0.
    pub fn lay_out(base: u16, regions: usize) -> Result<FleetPorts> {
        FleetPorts::lay_out_shared(base, regions, &[])
    }

    /// Does the same with several gateways, by region; regions beyond the list have one.
    pub fn lay_out_shared(base: u16, regions: usize, gateways: &[usize]) -> Result<FleetPorts> {
        ensure!(base != 0, "port base 0 is no port: choose one with --port-base, such as 7400");
        let region = |number: usize| -> Option<RegionPorts> {
            let first = u16::try_from(number.checked_mul(10)?).ok()?.checked_add(base)?;
            let postgres = first.checked_add(5)?;
            let [public, admin, peer, upstream] = [1, 2, 3, 4].map(|offset| first + offset);
            Some(RegionPorts { public, admin, peer, upstream, postgres })
        };
        let laid_out: Option<Vec<RegionPorts>> = (0..regions).map(region).collect();
        let laid_out = laid_out.with_context(|| {
            format!("{regions} regions do not fit above port {base}: choose a lower --port-base")
        })?;
        let mut all = vec![Vec::new(); regions];
        let mut next = u16::try_from(regions * 10).ok().and_then(|beyond| base.checked_add(beyond));
        for (number, count) in gateways.iter().enumerate().take(regions).filter(|(_, count)| **count > 1) {
            for _ in 0..*count {
                let first = next.filter(|first| *first < u16::MAX - 3);
                let first = first.context("that many gateways do not fit: choose a lower --port-base")?;
                let [public, admin, peer] = [first, first + 1, first + 2];
                all[number].push(RegionPorts { public, admin, peer, ..laid_out[number] });
                next = Some(first + 3);
            }
        }
        Ok(FleetPorts { control: base, regions: laid_out, gateways: all })
    }

    /// Checks that every port can be bound now. The error names each taken one and its purpose.
    pub fn check_free(&self, names: &[String]) -> Result<()> {
        let mut wanted = vec![(self.control, "control".to_owned())];
        for (ports, name) in self.regions.iter().zip(names) {
            let RegionPorts { public, admin, peer, upstream, postgres } = *ports;
            let own = [public, admin, peer, upstream, postgres].into_iter();
            let purposes = ["public", "admin", "peer", "sample upstream", "Postgres"];
            wanted.extend(own.zip(purposes.map(|purpose| format!("{purpose} of {name}"))));
        }
        for (gateways, name) in self.gateways.iter().zip(names) {
            for (number, own) in gateways.iter().enumerate() {
                let of = |purpose: &str| format!("{purpose} of gateway {} of {name}", number + 1);
                wanted.extend([(own.public, of("public")), (own.admin, of("admin")), (own.peer, of("peer"))]);
            }
        }
        let look = |(port, purpose): &(u16, String)| {
            let error = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).err()?;
            Some(match error.kind() {
                std::io::ErrorKind::AddrInUse => format!("port {port} ({purpose}) is taken"),
                _ => format!("port {port} ({purpose}) cannot be bound: {error}"),
            })
        };
        let taken = still_taken(|| wanted.iter().filter_map(look).collect());
        ensure!(
            taken.is_empty(),
            "{}: stop what listens there, or choose other ports with --port-base",
            taken.join(", ")
        );
        Ok(())
    }
}

/// The ports that are taken and stay so for a moment. `look` binds each port to test it. A process
/// that another thread forks at that moment keeps a copy of the socket until it executes its
/// program.
fn still_taken(mut look: impl FnMut() -> Vec<String>) -> Vec<String> {
    let mut taken = Vec::new();
    let freed = wait::blocking_until("ports to be free", COPIED_FOR, || {
        taken = look();
        taken.is_empty()
    });
    if freed.is_ok() { Vec::new() } else { taken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_is_kept_to_the_letter() {
        let ports = FleetPorts::lay_out(7400, 3).unwrap();
        assert_eq!(ports.control, 7400);
        let first = RegionPorts { public: 7401, admin: 7402, peer: 7403, upstream: 7404, postgres: 7405 };
        let last = RegionPorts { public: 7421, admin: 7422, peer: 7423, upstream: 7424, postgres: 7425 };
        assert_eq!((ports.regions[0], ports.regions[2]), (first, last));
    }

    #[test]
    fn a_port_that_is_taken_for_a_moment_is_free() {
        let mut looks = 0;
        let soon_free = || {
            looks += 1;
            if looks < 3 { vec!["port 1 is taken".to_owned()] } else { Vec::new() }
        };
        assert_eq!(still_taken(soon_free), [""; 0]);
        assert_eq!(still_taken(|| vec!["port 1 is taken".to_owned()]), ["port 1 is taken"]);
    }

    #[test]
    fn several_gateways_have_separate_ports() {
        let (one, several) =
            (FleetPorts::lay_out(7400, 3).unwrap(), FleetPorts::lay_out_shared(7400, 3, &[1, 3, 2]).unwrap());
        assert_eq!(one.regions, several.regions);
        assert!(one.gateways.iter().all(Vec::is_empty) && several.gateways[0].is_empty());
        let own = RegionPorts { public: 7430, admin: 7431, peer: 7432, ..one.regions[1] };
        assert_eq!((several.gateways[1].len(), several.gateways[1][0]), (3, own));
        assert_eq!(several.gateways[2].last().map(|last| last.peer), Some(7444));
        assert!(FleetPorts::lay_out_shared(65_490, 3, &[9, 9, 9]).is_err());
    }

    #[test]
    fn ports_beyond_the_last_are_refused() {
        assert!(FleetPorts::lay_out(65_520, 3).is_err());
        assert!(FleetPorts::lay_out(0, 3).is_err());
        assert!(FleetPorts::lay_out(7400, 100_000).is_err());
        FleetPorts::lay_out(65_510, 3).unwrap();
    }
}

//! Samples the gateways' memory (resident set) and descriptors during a soak, and compares their
//! quarters. Only the first gateway of each region is judged: it lives from beginning to end.

use std::collections::BTreeMap;
use std::time::Duration;

use procfs::net::TcpNetEntry;
use procfs::process::{FDTarget, Process};
use serde::Serialize;
use tokio::time::Instant;

use crate::deployment::Deployment;
use crate::gateway::Gateway;
use onceway_client::Ask;

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Instant,
    pub pid: u32,
    /// Resident set, in KiB.
    pub rss: u64,
    pub descriptors: Descriptors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    pub store: u64,
    /// Connections to upstreams (two descriptors each), kept for half a minute, and from peers. A
    /// gateway that is left gets its neighbour's, for four minutes at most.
    pub kept: u64,
    pub others: u64,
}

/// Ports at the other ends of one gateway's sockets, and its own peer port.
#[derive(Clone, Copy, Debug)]
struct Ends<'a> {
    store: u16,
    peer: u16,
    upstreams: &'a [u16],
}

/// Allowed growth of a median from the second quarter to the last.
#[derive(Clone, Copy, Debug)]
pub struct Slack {
    /// In hundredths of the second quarter's median.
    pub percent: u64,
    /// Added to that, in the unit of the samples.
    pub beside: u64,
}

pub const MEMORY: Slack = Slack { percent: 10, beside: 8 * 1024 };
/// Slack of other descriptors. In half an hour three drains, the rarest event, fall between the two
/// quarters: one descriptor left open by each shows.
const DESCRIPTORS: Slack = Slack { percent: 0, beside: 2 };
/// Slack in a shorter soak: on a busy machine the number of requests under way differs by more. One
/// descriptor left open by every request still shows.
const DESCRIPTORS_SHORT: Slack = Slack { percent: 0, beside: 8 };
/// Shortest quarter that shows whether connections to upstreams and from peers are kept or leak.
const KEPT_FOR: Duration = Duration::from_secs(5 * 60);

/// The slack of descriptors beside those to the store, at the end of a soak of this length.
pub fn descriptors_slack(length: Duration) -> Slack {
    if length / 4 < KEPT_FOR { DESCRIPTORS_SHORT } else { DESCRIPTORS }
}

/// Most kept connections, in descriptors, in a soak that is too short to judge them otherwise. Each
/// of four peers has two, as one may be in renewal, and so has each concurrent request. One
/// descriptor left open by every request soon exceeds this.
pub fn most_kept(length: Duration, keys_per_second: f64) -> Option<u64> {
    (length / 4 < KEPT_FOR).then_some(8 + 2 * (keys_per_second.ceil() as u64).max(16))
}

/// Most connections to the store: the default `pool` of the reference file.
pub const STORE: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Medians {
    pub second: u64,
    pub last: u64,
}

impl Medians {
    pub fn grew(self, slack: Slack) -> bool {
        self.last > self.second + self.second * slack.percent / 100 + slack.beside
    }
}

#[derive(Default)]
pub struct Meter {
    samples: BTreeMap<(usize, usize), Vec<Sample>>,
    /// Last count of lost claims that each process reported.
    claims_lost: BTreeMap<u32, u64>,
}

const PATIENCE: Duration = Duration::from_secs(2);

impl Meter {
    /// Takes a sample of each gateway. One that does not answer is not waited for.
    pub async fn look(&mut self, deployment: &Deployment) {
        let upstreams: Vec<u16> = deployment.regions.iter().map(|region| region.ports.upstream).collect();
        for (number, region) in deployment.regions.iter().enumerate() {
            for (own, gateway) in region.gateways.iter().enumerate() {
                let Some(pid) = gateway.process().map(|process| process.pid()) else { continue };
                let (store, peer) = (region.ports.postgres, gateway.ports.peer);
                let ends = Ends { store, peer, upstreams: &upstreams };
                if let (Some(rss), Some(descriptors)) = (resident(pid), descriptors(pid, ends)) {
                    let sample = Sample { at: Instant::now(), pid, rss, descriptors };
                    self.samples.entry((number, own)).or_default().push(sample);
                }
                if let Some(lost) = counter(gateway, "onceway_claims_lost_total", PATIENCE).await {
                    self.claims_lost.insert(pid, lost);
                }
            }
        }
    }

    /// Outcomes that found no claim left, in all processes together.
    pub fn claims_lost(&self) -> u64 {
        self.claims_lost.values().sum()
    }

    pub fn newest(&self) -> impl Iterator<Item = (usize, Sample)> {
        let first = self.samples.iter().filter(|((_, own), _)| *own == 0);
        first.filter_map(|((region, _), samples)| Some((*region, *samples.last()?)))
    }

    /// Maximum of a count of descriptors of a region's first gateway.
    pub fn most(&self, region: usize, of: fn(Descriptors) -> u64) -> u64 {
        let samples = self.samples.get(&(region, 0)).into_iter().flatten();
        samples.map(|sample| of(sample.descriptors)).max().unwrap_or(0)
    }

    /// The medians of a region's first gateway: of memory in KiB, and of descriptors except those
    /// to the store. None if it did not live all the time, or has too few samples.
    pub fn medians(&self, region: usize, begun: Instant, ended: Instant) -> Option<(Medians, Medians)> {
        let samples = self.samples.get(&(region, 0))?;
        let pid = samples.first()?.pid;
        if samples.iter().any(|sample| sample.pid != pid) {
            return None;
        }
        let quarter = (ended - begun) / 4;
        let of = |from: Instant, value: fn(&Sample) -> u64| {
            let within = |sample: &&Sample| sample.at >= from && sample.at < from + quarter;
            median(samples.iter().filter(within).map(value).collect())
        };
        let both = |value: fn(&Sample) -> u64| {
            Some(Medians { second: of(begun + quarter, value)?, last: of(begun + 3 * quarter, value)? })
        };
        let open: fn(&Sample) -> u64 = match quarter < KEPT_FOR {
            true => |sample| sample.descriptors.others,
            false => |sample| sample.descriptors.kept + sample.descriptors.others,
        };
        Some((both(|sample| sample.rss)?, both(open)?))
    }
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    (values.len() >= 3).then(|| values[values.len() / 2])
}

fn process(pid: u32) -> Option<Process> {
    Process::new(pid.try_into().ok()?).ok()
}

fn resident(pid: u32) -> Option<u64> {
    process(pid)?.status().ok()?.vmrss
}

fn descriptors(pid: u32, ends: Ends<'_>) -> Option<Descriptors> {
    let process = process(pid)?;
    // The ports at both ends of all sockets, own port first.
    let ports = |entry: TcpNetEntry| (entry.inode, (entry.local_address.port(), entry.remote_address.port()));
    let sockets: BTreeMap<u64, (u16, u16)> = process.tcp().ok()?.into_iter().map(ports).collect();
    let mut counted = Descriptors { store: 0, kept: 0, others: 0 };
    for descriptor in process.fd().ok()? {
        let socket = match descriptor.map(|descriptor| descriptor.target) {
            Ok(FDTarget::Socket(inode)) => sockets.get(&inode),
            _ => None,
        };
        match socket {
            Some((_, remote)) if *remote == ends.store => counted.store += 1,
            Some((_, remote)) if ends.upstreams.contains(remote) => counted.kept += 1,
            // A listener has no other end.
            Some((own, remote)) if *own == ends.peer && *remote != 0 => counted.kept += 1,
            _ => counted.others += 1,
        }
    }
    Some(counted)
}

/// A counter that a gateway shows, all series together; none if it does not answer.
pub async fn counter(gateway: &Gateway, name: &str, within: Duration) -> Option<u64> {
    Some(total(&Ask::get(format!("{}/metrics", gateway.admin())).send(within).await.ok()?.text(), name))
}

fn total(page: &str, name: &str) -> u64 {
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = if rest.starts_with('{') { rest.rsplit(' ').next()? } else { rest.strip_prefix(' ')? };
        value.parse::<u64>().ok()
    };
    page.lines().filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    /// A meter with a hundred samples, `every` seconds apart.
    fn meter(every: u64, rss: impl Fn(u64) -> u64, restarted: bool) -> (Meter, Instant, Instant) {
        let begun = Instant::now();
        let at = |number: u64| begun + Duration::from_secs(number * every);
        let sample = |number: u64| {
            let pid = if restarted && number > 50 { 8 } else { 7 };
            let descriptors = Descriptors { store: number, kept: number / 10, others: 12 + rss(number) % 2 };
            Sample { at: at(number), pid, rss: rss(number), descriptors }
        };
        let samples = [((0, 0), (0..100).map(sample).collect())].into();
        (Meter { samples, claims_lost: BTreeMap::new() }, begun, at(100))
    }

    #[test]
    fn a_leak_differs_from_a_warm_up_or_peak() {
        let grew = |rss: fn(u64) -> u64| {
            let (meter, begun, ended) = meter(1, rss, false);
            let (memory, descriptors) = meter.medians(0, begun, ended).unwrap();
            assert!(!descriptors.grew(descriptors_slack(ended - begun)));
            memory.grew(MEMORY)
        };
        assert!(grew(|number| 50_000 + 400 * number), "13 MiB up on 60 MiB");
        assert!(!grew(|number| 50_000 + 100 * number.min(25) * 20), "all of it in the first quarter");
        assert!(!grew(|number| if number % 10 == 0 { 200_000 } else { 50_000 }), "a peak now and then");
        let (meter, begun, ended) = meter(1, |_| 50_000, true);
        assert!(meter.medians(0, begun, ended).is_none(), "two lives have no common median");
        let [short, long] = [60, 1_800].map(|seconds| descriptors_slack(Duration::from_secs(seconds)));
        let grew = |last, slack| Medians { second: 20, last }.grew(slack);
        assert!(grew(23, long) && !grew(22, long) && grew(29, short) && !grew(28, short));
    }

    #[test]
    fn kept_connections_that_keep_growing_are_a_leak() {
        let grew = |every: u64| {
            let (meter, begun, ended) = meter(every, |_| 50_000, false);
            assert_eq!((meter.most(0, |of| of.store), meter.most(0, |of| of.kept)), (99, 9));
            meter.medians(0, begun, ended).unwrap().1.grew(descriptors_slack(ended - begun))
        };
        assert!(!grew(1) && grew(18), "in 100 s and in half an hour");
        let most = |seconds: u64, rate: f64| most_kept(Duration::from_secs(seconds), rate);
        assert_eq!((most(40, 6.0), most(40, 100.0), most(1_800, 6.0)), (Some(40), Some(208), None));
    }

    #[test]
    fn all_series_of_a_metric_count_and_no_other() {
        let page = "# HELP lost x\nlost{route=\"a b\"} 2\nlost{route=\"c\"} 1\nlost_too 9\n";
        assert_eq!(total(page, "lost"), 3);
        assert_eq!(total("lost 4\n", "lost"), 4);
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let pid = std::process::id();
        assert!(resident(pid).unwrap() > 1_000 && resident(u32::MAX).is_none());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let of = |ends: Ends<'_>| descriptors(pid, ends).unwrap();
        let nobody = Ends { store: 1, peer: 1, upstreams: &[] };
        let (as_store, as_peer) = (Ends { store: port, ..nobody }, Ends { peer: port, ..nobody });
        let before = of(as_store);
        assert!(before.store == 0 && before.kept == 0 && before.others > 2);
        let _there = [(); 2].map(|()| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
        let _here = [(); 2].map(|()| listener.accept().unwrap());
        assert_eq!((of(as_store).store, of(as_store).kept), (2, 0));
        assert_eq!((of(as_peer).store, of(as_peer).kept), (0, 2), "the listener itself is none");
        assert_eq!(of(Ends { upstreams: &[port], ..nobody }).kept, 2);
        assert!(descriptors(u32::MAX, nobody).is_none());
    }
}

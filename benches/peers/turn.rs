//! One turn of one candidate under load, with the meters read before and after it, and rounds of
//! turns.

use std::fs;
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use onceway_lab::cluster::Cluster;
use onceway_lab::{files, proctable};
use rustix::process::Pid;

use super::stand::{NAIVE, Stand};

pub const ROUNDS: usize = 3;
/// Time in which the store learns that its clients have left.
const SETTLES: Duration = Duration::from_millis(50);
/// Clock ticks of `/proc` in a second, on every Linux.
const TICKS: f64 = 100.0;
const ASK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/ask.lua");

/// The side that makes the load.
#[derive(Clone)]
pub enum Load {
    /// Requests of one kind, a word of `ask.lua`, made on these CPUs.
    Wrk { port: u16, connections: usize, asks: &'static str, cpus: String },
    /// Transactions of this script, 16 clients.
    Pgbench { script: &'static str },
}

/// One candidate: its load, and the proxy whose CPU counts.
#[derive(Clone)]
pub struct Turn {
    pub name: &'static str,
    pub load: Load,
    pub proxy: Option<u32>,
    /// In seconds: wrk knows nothing shorter.
    pub lasts: u32,
}

/// The yield of one or several turns: sums, so that ratios weigh each turn by its work.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    pub done: f64,
    pub seconds: f64,
    /// Seconds of CPU of the proxy, and of all processes of the store.
    pub proxy: f64,
    pub store: f64,
    /// The median latency of each turn, in microseconds.
    pub p50: f64,
    /// Keys that the gateway's store has more.
    pub keys: f64,
}

impl Seen {
    pub fn rate(&self) -> f64 {
        self.done / self.seconds
    }

    pub fn proxy_each(&self) -> f64 {
        self.proxy / self.done
    }

    pub fn store_each(&self) -> f64 {
        self.store / self.done
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Seen) {
        self.done += other.done;
        self.seconds += other.seconds;
        self.proxy += other.proxy;
        self.store += other.store;
        self.p50 += other.p50;
        self.keys += other.keys;
    }
}

/// Runs these candidates forward and backward in each round, after one turn of each that does not
/// count. Returns the yields by round.
pub async fn rounds<const N: usize>(stand: &Stand, turns: &[Turn; N]) -> Result<Vec<[Seen; N]>> {
    for turn in turns {
        turn.run(stand).await?;
    }
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let mut round = [Seen::default(); N];
        for at in (0..N).chain((0..N).rev()) {
            let seen = turns[at].run(stand).await?;
            turns[at].check(seen)?;
            eprintln!(
                "round {number}: {:<24} {:>8.0}/s  p50 {:>6.0} µs  CPU each: proxy {:>6.1} µs, store {:>6.1} µs",
                turns[at].name,
                seen.rate(),
                seen.p50,
                seen.proxy_each() * 1e6,
                seen.store_each() * 1e6
            );
            round[at] += seen;
        }
        rounds.push(round);
    }
    Ok(rounds)
}

impl Turn {
    pub async fn run(&self, stand: &Stand) -> Result<Seen> {
        if matches!(self.load, Load::Pgbench { .. }) {
            let naive = stand.region.cluster.connect(NAIVE).await?;
            naive.batch_execute("truncate idem").await?;
        }
        let keys_before = keys(stand).await?;
        let before = self.meters(stand)?;
        let mut seen = match &self.load {
            Load::Wrk { .. } => self.wrk(stand)?,
            Load::Pgbench { script } => pgbench(stand, script, self.lasts)?,
        };
        tokio::time::sleep(SETTLES).await;
        let after = self.meters(stand)?;
        seen.proxy = after.0 - before.0;
        seen.store = after.1 - before.1;
        seen.keys = (keys(stand).await? - keys_before) as f64;
        Ok(seen)
    }

    /// A turn of fresh keys makes as many, and no other turn makes any. Up to 256 requests were on
    /// their way when wrk left, and make keys that it does not count.
    fn check(&self, seen: Seen) -> Result<()> {
        let Seen { done, keys, .. } = seen;
        let makes = matches!(self.load, Load::Wrk { asks: "fresh" | "secure-fresh", .. });
        let expected = if makes { done } else { 0.0 };
        let agree = (keys - expected).abs() <= 256.0 + expected / 100.0;
        ensure!(agree, "{}: {done} answers, and {keys} new keys", self.name);
        Ok(())
    }

    /// The command of a turn with wrk.
    pub fn wrk_command(&self, stand: &Stand) -> Result<Command> {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let Load::Wrk { port, connections, asks, cpus } = &self.load else { bail!("no turn of wrk") };
        let seed = format!("{:08x}-{:04x}", std::process::id(), TURN.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new("taskset");
        command.args(["-c", cpus]).arg(&stand.tools.wrk).args(["-t1", &format!("-c{connections}")]);
        command.args([&format!("-d{}s", self.lasts), "-s", ASK, &format!("http://127.0.0.1:{port}")]);
        command.args(["--", asks, &seed]).stdin(Stdio::null());
        Ok(command)
    }

    fn wrk(&self, stand: &Stand) -> Result<Seen> {
        let output = self.wrk_command(stand)?.output().context("cannot run wrk")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = text.lines().find_map(|line| line.strip_prefix("asked "));
        let words =
            words.with_context(|| format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        let numbers: Vec<f64> = words.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [done, micros, failed, p50] = numbers[..] else { bail!("wrk: {words}") };
        let fails = failed > done / 100.0 || done == 0.0;
        ensure!(!fails, "{}: of {done} requests {failed} failed", self.name);
        Ok(Seen { done: done - failed, seconds: micros / 1e6, p50, ..Seen::default() })
    }

    /// Seconds of CPU so far: of the proxy, and of the store.
    fn meters(&self, stand: &Stand) -> Result<(f64, f64)> {
        let proxy = self.proxy.map_or(Ok(0.0), cpu)?;
        Ok((proxy, cluster_cpu(&stand.region.cluster)?))
    }
}

/// Seconds of CPU of all processes of a Postgres so far.
pub fn cluster_cpu(cluster: &Cluster) -> Result<f64> {
    let postmaster = cluster.pid().context("Postgres is over")?;
    let root = i32::try_from(postmaster).ok().and_then(Pid::from_raw).context("a pid")?;
    let children = proctable::descendants(root);
    // A child that ended meanwhile is in its parent's sum.
    let children =
        children.iter().filter_map(|child| cpu(child.pid.as_raw_nonzero().get().unsigned_abs()).ok());
    Ok(cpu(postmaster)? + children.sum::<f64>())
}

/// Seconds of CPU of a process so far, with its children that have ended.
fn cpu(pid: u32) -> Result<f64> {
    let stat =
        fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} is over"))?;
    let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
    let ticks = fields.split_ascii_whitespace().skip(11).take(4).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS)
}

async fn keys(stand: &Stand) -> Result<i64> {
    let client = stand.region.cluster.connect(files::DATABASE).await?;
    Ok(client.query_one("select count(*) from onceway.records", &[]).await?.try_get(0)?)
}

fn pgbench(stand: &Stand, script: &str, lasts: u32) -> Result<Seen> {
    let file = stand.dir.join("pgbench.sql");
    fs::write(&file, script)?;
    let port = stand.region.cluster.port().to_string();
    let mut command = Command::new(&stand.tools.pgbench);
    command.args(["-n", "-c", "16", "-j", "1", "-M", "prepared", "-h", "127.0.0.1", "-U", "postgres"]);
    command.args(["-p", &port, "-T", &lasts.to_string(), "-f"]).arg(file).arg(NAIVE);
    let output = command.stdin(Stdio::null()).output().context("cannot run pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |begins: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(begins))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let said = || format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr));
    let done = number("number of transactions actually processed: ").with_context(said)?;
    let rate = number("tps = ").with_context(said)?;
    Ok(Seen { done, seconds: done / rate, ..Seen::default() })
}

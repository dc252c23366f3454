//! The rows of the result: the turns that each compares, its ratio in a round, and their table.
//!
//! It must not read meters itself, nor change a document outside of its two marks.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use onceway_lab::files;
use tokio::time::sleep;

use super::stand::{Form, Stand, cpus, pin};
use super::turn::{Load, ROUNDS, Seen, Turn, cluster_cpu, rounds};

const BEGIN: &str = "<!-- peers -->";
const END: &str = "<!-- /peers -->";
/// Two statements for one key, each a transaction, without a gateway.
const NAIVE: &str = "\
\\set a random(1, 9223372036854775807)
\\set b random(1, 9223372036854775807)
insert into idem (key, fp, token) values (:a::text || '-' || :b::text, sha256('x'), 1) on conflict (key) do nothing returning token;
update idem set state = 1, status = 200, body = convert_to(repeat(md5(:a::text), 32), 'UTF8') \
where key = :a::text || '-' || :b::text and token = 1 and state = 0;
";
const LOOK: &str = "\
\\set n random(1, 10000)
insert into looked (key, fp, token) values ('seed-' || :n::text, sha256('x'), 1) on conflict (key) do nothing returning token;
select status, fp, body from looked where key = 'seed-' || :n::text;
";

/// The ratio of a row in each round.
fn row<const N: usize>(
    what: &'static str,
    must: &'static str,
    rounds: &[[Seen; N]],
    ratio: impl Fn(&[Seen; N]) -> f64,
) -> Row {
    Row { what, must, values: rounds.iter().map(ratio).collect() }
}

/// A second of requests of one kind at a port, 64 at once, made on these CPUs. The CPU of `proxy`
/// counts.
fn turn(name: &'static str, port: u16, asks: &'static str, proxy: u32, cpus: &str) -> Turn {
    let load = Load::Wrk { port, connections: 64, asks, cpus: cpus.to_owned() };
    Turn { name, load, proxy: Some(proxy), lasts: 1 }
}

/// Two seconds of requests at the gateway as it comes; all share the machine.
async fn usual(
    stand: &mut Stand,
    name: &'static str,
    connections: usize,
    asks: &'static str,
) -> Result<Turn> {
    let gateway = stand.gateway(Form::Usual, false).await?;
    let [cpus, ..] = cpus()?;
    let load = Load::Wrk { port: stand.region.ports.public, connections, asks, cpus };
    Ok(Turn { name, load, proxy: Some(gateway), lasts: 2 })
}

async fn fresh(stand: &mut Stand) -> Result<Turn> {
    usual(stand, "onceway, 64 new keys", 64, "fresh").await
}

/// Two statements for each key, without a gateway.
fn naive() -> Turn {
    Turn { name: "pgbench, naive", load: Load::Pgbench { script: NAIVE }, proxy: None, lasts: 3 }
}

/// Gives both proxies the last CPU, and the upstream the first. Returns the gateway's pid, and all
/// CPUs, the first and the last.
async fn pinned(stand: &mut Stand, form: Form) -> Result<(u32, [String; 3])> {
    let gateway = stand.gateway(form, false).await?;
    let [all, first, last] = cpus()?;
    pin(gateway, &last)?;
    pin(stand.proxy.pid(), &last)?;
    pin(stand.upstream.pid(), &first)?;
    Ok((gateway, [all, first, last]))
}

fn unpinned(stand: &Stand, gateway: u32, all: &str) -> Result<()> {
    [gateway, stand.proxy.pid(), stand.upstream.pid()].into_iter().try_for_each(|pid| pin(pid, all))
}

/// Requests that pass: the CPU of a gateway with one worker, and of nginx, for each.
pub async fn pass(stand: &mut Stand, logged: bool) -> Result<Vec<Row>> {
    let form = if logged { Form::Logged } else { Form::Quiet };
    let (gateway, [all, first, _]) = pinned(stand, form).await?;
    let (nginx, ports, public) = (stand.proxy.pid(), stand.nginx_ports, stand.region.ports.public);
    let port = if logged { ports.logged } else { ports.quiet };
    let names = match logged {
        false => ["pass-through POST, log off: CPU ÷ nginx", "the same, GET"],
        true => ["pass-through POST, default log: CPU ÷ nginx with access log", "the same with logs, GET"],
    };
    let must = if logged { "≤ 2.0" } else { "≤ 1.8" };
    let mut rows = Vec::new();
    for (name, asks) in names.into_iter().zip(["passed", "get"]) {
        let theirs = turn("nginx", port, asks, nginx, &first);
        let ours = turn("onceway, passed", public, asks, gateway, &first);
        let seen = rounds(stand, &[theirs, ours]).await?;
        rows.push(row(name, must, &seen, |[theirs, ours]| ours.proxy_each() / theirs.proxy_each()));
    }
    unpinned(stand, gateway, &all)?;
    Ok(rows)
}

/// The same for an upstream behind TLS, and what TLS costs new keys.
pub async fn secure(stand: &mut Stand) -> Result<Vec<Row>> {
    let (gateway, [all, first, _]) = pinned(stand, Form::Quiet).await?;
    let (nginx, ports, public) = (stand.proxy.pid(), stand.nginx_ports, stand.region.ports.public);
    let theirs = turn("nginx, to TLS", ports.secure, "secure-passed", nginx, &first);
    let ours = turn("onceway, passed to TLS", public, "secure-passed", gateway, &first);
    let seen = rounds(stand, &[theirs, ours]).await?;
    let passed = row("pass-through POST to TLS, log off: CPU ÷ nginx", "", &seen, |[theirs, ours]| {
        ours.proxy_each() / theirs.proxy_each()
    });
    unpinned(stand, gateway, &all)?;
    let gateway = stand.gateway(Form::Usual, false).await?;
    let plain = turn("64 new keys", public, "fresh", gateway, &all);
    let secure = turn("64 new keys, to TLS", public, "secure-fresh", gateway, &all);
    let seen = rounds(stand, &[plain, secure]).await?;
    let keys = row("new keys/s at 64 to TLS ÷ to plain HTTP", "", &seen, |[plain, secure]| {
        secure.rate() / plain.rate()
    });
    Ok(vec![passed, keys])
}

/// One request at a time, with client, proxies and upstream on one core: on several, each hop's
/// wake-up would hide the rest.
pub async fn alone(stand: &mut Stand) -> Result<Vec<Row>> {
    let gateway = stand.gateway(Form::Quiet, false).await?;
    let [all, first, _] = cpus()?;
    unpinned(stand, gateway, &first)?;
    let turn = |name, port, asks| {
        let load = Load::Wrk { port, connections: 1, asks, cpus: first.clone() };
        Turn { name, load, proxy: None, lasts: 1 }
    };
    let (ports, public) = (stand.nginx_ports, stand.region.ports.public);
    let turns = [
        turn("no proxy", ports.direct, "passed"),
        turn("nginx", ports.quiet, "passed"),
        turn("onceway, passed", public, "passed"),
        turn("onceway, new keys", public, "fresh"),
    ];
    let seen = rounds(stand, &turns).await?;
    unpinned(stand, gateway, &all)?;
    let added = |seen: &Seen, direct: &Seen| seen.p50 - direct.p50;
    Ok(vec![
        row(
            "one passed request alone: added p50 ÷ nginx",
            "≤ 1.5",
            &seen,
            |[direct, nginx, passed, _]| added(passed, direct) / added(nginx, direct),
        ),
        row("one new key alone: added p50 ÷ nginx", "", &seen, |[direct, nginx, _, key]| {
            added(key, direct) / added(nginx, direct)
        }),
    ])
}

/// New keys, beside two statements for each by pgbench; client, upstream, gateway and store share
/// the machine.
pub async fn new_keys(stand: &mut Stand) -> Result<Vec<Row>> {
    let few = fresh(stand).await?;
    let many = usual(stand, "onceway, 256 new keys", 256, "fresh").await?;
    let [all, ..] = cpus()?;
    let nginx = turn("nginx", stand.nginx_ports.quiet, "passed", stand.proxy.pid(), &all);
    let turns = [nginx, naive(), few, many];
    let seen = rounds(stand, &turns).await?;
    Ok(vec![
        row("new keys/s at 64 ÷ pgbench naive", "≥ 0.55", &seen, |[_, naive, ours, _]| {
            ours.rate() / naive.rate()
        }),
        row("new keys/s at 256 ÷ pgbench naive", "≥ 0.75", &seen, |[_, naive, _, ours]| {
            ours.rate() / naive.rate()
        }),
        row("Postgres CPU for each new key at 64 ÷ naive", "≤ 0.8", &seen, |[_, naive, ours, _]| {
            ours.store_each() / naive.store_each()
        }),
        row(
            "gateway CPU for each new key at 64 ÷ nginx for each request",
            "≤ 9",
            &seen,
            |[nginx, _, ours, _]| ours.proxy_each() / nginx.proxy_each(),
        ),
    ])
}

/// Syncs for each new key, counted in the midst of a turn: sessions report theirs once a second.
pub async fn syncs(stand: &mut Stand) -> Result<Vec<Row>> {
    let turn = Turn { lasts: 4, ..fresh(stand).await? };
    let store = stand.region.cluster.connect(files::DATABASE).await?;
    let count = stand.syncs_and_keys();
    let mut values = Vec::new();
    for _ in 0..ROUNDS {
        let mut wrk = turn.wrk_command(stand)?.stdout(Stdio::null()).spawn()?;
        sleep(Duration::from_millis(1_200)).await;
        let before = store.query_one(count, &[]).await?;
        sleep(Duration::from_secs(2)).await;
        let after = store.query_one(count, &[]).await?;
        wrk.wait()?;
        let more = |at| anyhow::Ok(after.try_get::<_, i64>(at)? - before.try_get::<_, i64>(at)?);
        let (syncs, keys) = (more(0)?, more(1)?);
        values.push(syncs as f64 / keys as f64);
        eprintln!("syncs: {syncs} for {keys} keys");
    }
    Ok(vec![Row { what: "WAL syncs for each new key at 64", must: "≤ 0.3", values }])
}

/// Replays, beside an insert that finds its key and a look at it.
pub async fn replays(stand: &mut Stand) -> Result<Vec<Row>> {
    let looks = Load::Pgbench { script: LOOK };
    let turns = [
        Turn { name: "pgbench, insert or look", load: looks, proxy: None, lasts: 2 },
        usual(stand, "onceway, replays", 64, "same").await?,
    ];
    let seen = rounds(stand, &turns).await?;
    Ok(vec![row("replays/s at 64 ÷ pgbench insert-or-look", "≥ 1.0", &seen, |[look, ours]| {
        ours.rate() / look.rate()
    })])
}

/// The CPU of a second region's Postgres that follows new keys, for each of them. The last group:
/// from here on the first store has a follower.
pub async fn replica(stand: &mut Stand) -> Result<Vec<Row>> {
    let (fresh, naive) = (fresh(stand).await?, naive());
    let replica = stand.replica().await?;
    let mut values = Vec::new();
    for round in 0..=ROUNDS {
        let theirs = naive.run(stand).await?;
        stand.replicated().await?;
        let before = cluster_cpu(&replica)?;
        let ours = fresh.run(stand).await?;
        stand.replicated().await?;
        let each = (cluster_cpu(&replica)? - before) / ours.keys;
        eprintln!("replica: {:.1} µs of CPU each, naive {:.1} µs", each * 1e6, theirs.store_each() * 1e6);
        // The first turn does not count.
        values.extend((round > 0).then(|| each / theirs.store_each()));
    }
    replica.kill().await?;
    Ok(vec![Row { what: "Postgres CPU for each new key at a replica ÷ naive", must: "≤ 1.0", values }])
}

/// One measured quantity, with a value for each round.
pub struct Row {
    pub what: &'static str,
    /// The bound that issue 39 sets; empty if there is none.
    pub must: &'static str,
    pub values: Vec<f64>,
}

/// The table as text, with a last line that says where it was measured.
pub fn show(rows: &[Row], place: &str) -> String {
    let mut text = String::from("| row | minimum | median | maximum | must |\n|---|---|---|---|---|\n");
    for Row { what, must, values } in rows {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        let [least, middle, most] = [at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1))];
        writeln!(text, "| {what} | {least:.2} | {middle:.2} | {most:.2} | {must} |")
            .unwrap_or_else(|error| panic!("a string takes all text: {error}"));
    }
    format!("{text}\n{place}")
}

/// Puts the text between the marks of `docs/measurements.md`.
pub fn write(shown: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements.md");
    let old = std::fs::read_to_string(&path)?;
    let (before, rest) =
        old.split_once(BEGIN).with_context(|| format!("no {BEGIN} in {}", path.display()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no {END} in {}", path.display()))?;
    std::fs::write(&path, format!("{before}{BEGIN}\n{shown}\n{END}{after}"))?;
    Ok(())
}

/// The machine's load of the last minute.
pub fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

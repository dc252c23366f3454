//! The rows that compare turns: their candidates, and the ratio that each row takes from a round.
//!
//! It must not read meters itself.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use onceway_lab::files;
use tokio::time::sleep;

use super::stand::{Form, Stand, cpus, pin};
use super::table::Row;
use super::turn::{Load, ROUNDS, Seen, Turn, cluster_cpu, rounds};

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

/// Requests that pass: the CPU of a gateway with one worker, and of nginx, for each.
pub async fn pass(stand: &mut Stand, logged: bool) -> Result<Vec<Row>> {
    let gateway = stand.gateway(if logged { Form::Logged } else { Form::Quiet }, false).await?;
    let [all, first, last] = cpus()?;
    let (nginx, ports) = (stand.proxy.pid(), stand.nginx_ports);
    pin(gateway, &last)?;
    pin(nginx, &last)?;
    pin(stand.upstream.pid(), &first)?;
    let turn = |name, port, proxy, asks| Turn {
        name,
        load: Load::Wrk { port, connections: 64, asks, cpus: first.clone() },
        proxy: Some(proxy),
        lasts: 1,
    };
    let port = if logged { ports.logged } else { ports.quiet };
    let theirs = |asks| turn("nginx", port, nginx, asks);
    let ours = |asks| turn("onceway, passed", stand.region.ports.public, gateway, asks);
    let names = match logged {
        false => ["pass-through POST, log off: CPU ÷ nginx", "the same, GET"],
        true => ["pass-through POST, default log: CPU ÷ nginx with access log", "the same with logs, GET"],
    };
    let must = if logged { "≤ 2.0" } else { "≤ 1.8" };
    let mut rows = Vec::new();
    for (name, asks) in names.into_iter().zip(["passed", "get"]) {
        let seen = rounds(stand, &[theirs(asks), ours(asks)]).await?;
        rows.push(row(name, must, &seen, |[theirs, ours]| ours.proxy_each() / theirs.proxy_each()));
    }
    unpinned(stand, gateway, &all)?;
    Ok(rows)
}

/// The same for an upstream behind TLS, and what TLS costs new keys.
pub async fn secure(stand: &mut Stand) -> Result<Vec<Row>> {
    let gateway = stand.gateway(Form::Quiet, false).await?;
    let [all, first, last] = cpus()?;
    let (nginx, ports, public) = (stand.proxy.pid(), stand.nginx_ports, stand.region.ports.public);
    pin(gateway, &last)?;
    pin(nginx, &last)?;
    pin(stand.upstream.pid(), &first)?;
    let turn = |name, port, proxy, asks, cpus: &str| Turn {
        name,
        load: Load::Wrk { port, connections: 64, asks, cpus: cpus.to_owned() },
        proxy: Some(proxy),
        lasts: 1,
    };
    let theirs = turn("nginx, to TLS", ports.secure, nginx, "secure-passed", &first);
    let ours = turn("onceway, passed to TLS", public, gateway, "secure-passed", &first);
    let seen = rounds(stand, &[theirs, ours]).await?;
    let passed = row("pass-through POST to TLS, log off: CPU ÷ nginx", "", &seen, |[theirs, ours]| {
        ours.proxy_each() / theirs.proxy_each()
    });
    unpinned(stand, gateway, &all)?;
    let gateway = stand.gateway(Form::Usual, false).await?;
    let plain = turn("64 new keys", public, gateway, "fresh", &all);
    let secure = turn("64 new keys, to TLS", public, gateway, "secure-fresh", &all);
    let seen = rounds(stand, &[plain, secure]).await?;
    let keys = row("new keys/s at 64 to TLS ÷ to plain HTTP", "", &seen, |[plain, secure]| {
        secure.rate() / plain.rate()
    });
    Ok(vec![passed, keys])
}

fn unpinned(stand: &Stand, gateway: u32, all: &str) -> Result<()> {
    [gateway, stand.proxy.pid(), stand.upstream.pid()].into_iter().try_for_each(|pid| pin(pid, all))
}

/// One request at a time, with client, proxies and upstream on one core: on several, each hop's
/// wake-up would hide the rest.
pub async fn alone(stand: &mut Stand) -> Result<Vec<Row>> {
    let gateway = stand.gateway(Form::Quiet, false).await?;
    let [all, first, _] = cpus()?;
    unpinned(stand, gateway, &first)?;
    let turn = |name, port, asks| Turn {
        name,
        load: Load::Wrk { port, connections: 1, asks, cpus: first.clone() },
        proxy: None,
        lasts: 1,
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
    let gateway = stand.gateway(Form::Usual, false).await?;
    let [all, ..] = cpus()?;
    let wrk = |name, port, connections, asks, proxy, lasts| Turn {
        name,
        load: Load::Wrk { port, connections, asks, cpus: all.clone() },
        proxy: Some(proxy),
        lasts,
    };
    let public = stand.region.ports.public;
    let turns = [
        wrk("nginx", stand.nginx_ports.quiet, 64, "passed", stand.proxy.pid(), 1),
        Turn { name: "pgbench, naive", load: Load::Pgbench { script: NAIVE }, proxy: None, lasts: 3 },
        wrk("onceway, 64 new keys", public, 64, "fresh", gateway, 2),
        wrk("onceway, 256 new keys", public, 256, "fresh", gateway, 2),
    ];
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
    let gateway = stand.gateway(Form::Usual, false).await?;
    let [all, ..] = cpus()?;
    let load = Load::Wrk { port: stand.region.ports.public, connections: 64, asks: "fresh", cpus: all };
    let turn = Turn { name: "onceway, 64 new keys", load, proxy: Some(gateway), lasts: 4 };
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
    let gateway = stand.gateway(Form::Usual, false).await?;
    let [all, ..] = cpus()?;
    let load = Load::Wrk { port: stand.region.ports.public, connections: 64, asks: "same", cpus: all };
    let turns = [
        Turn { name: "pgbench, insert or look", load: Load::Pgbench { script: LOOK }, proxy: None, lasts: 2 },
        Turn { name: "onceway, replays", load, proxy: Some(gateway), lasts: 2 },
    ];
    let seen = rounds(stand, &turns).await?;
    Ok(vec![row("replays/s at 64 ÷ pgbench insert-or-look", "≥ 1.0", &seen, |[look, ours]| {
        ours.rate() / look.rate()
    })])
}

/// The CPU of a second region's Postgres that follows new keys, for each of them. The last group:
/// from here on the first store has a follower.
pub async fn replica(stand: &mut Stand) -> Result<Vec<Row>> {
    let gateway = stand.gateway(Form::Usual, false).await?;
    let [all, ..] = cpus()?;
    let load = Load::Wrk { port: stand.region.ports.public, connections: 64, asks: "fresh", cpus: all };
    let fresh = Turn { name: "onceway, 64 new keys", load, proxy: Some(gateway), lasts: 2 };
    let naive = Turn { name: "pgbench, naive", load: Load::Pgbench { script: NAIVE }, proxy: None, lasts: 3 };
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

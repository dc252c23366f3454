//! Measures the gateway beside nginx and `pgbench` in one run. `cargo bench --bench peers` runs
//! it; `-- --help` says more.
//!
//! Peers take turns (A B B A) in each round, and a ratio compares turns of one round only. So a
//! busy machine moves all candidates of a ratio alike. The first turn of each candidate is not
//! counted. It must not leave anything running, and must not pass or fail by its figures.

mod peers {
    pub mod idle;
    pub mod nginx;
    pub mod rows;
    pub mod stand;
    pub mod turn;
}

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use peers::stand::{Stand, Tools};
use peers::{idle, rows};

/// Measures onceway beside nginx and pgbench, in turns in one run.
///
/// One region runs with a real Postgres. Both proxies have the same upstream: an nginx that
/// answers with 1 KiB. Progress goes to stderr, the table to stdout.
#[derive(Parser)]
#[command(bin_name = "cargo bench --bench peers --", after_help = EXAMPLES)]
struct Args {
    /// Rows to measure; all of them if none is named
    #[arg(value_enum)]
    rows: Vec<Name>,
    /// Writes the table into docs/measurements.md; needs all rows
    #[arg(long, conflicts_with = "rows")]
    write: bool,
    /// The gateway to measure, in place of this build's own (which tests share)
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_onceway"))]
    gateway: PathBuf,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const EXAMPLES: &str = "\
Examples:
  cargo bench --bench peers                                all rows, five minutes
  cargo bench --bench peers -- new-keys replays            two groups of rows
  TMPDIR=/dev/shm cargo bench --bench peers -- --write     a RAM disk, so that no disk decides
  cargo bench --bench peers -- --gateway old/onceway pass  another build, with today's bench

It needs Linux, nginx, wrk, taskset and setpriv, Postgres and its pgbench, and a machine that
does little else. Each group has three rounds, in which candidates take turns forward and
backward. A ratio compares turns of one round. Each candidate's first turn does not count.

pgbench naive is an insert and an update for each key, with 16 clients. CPU is that of whole
processes; Postgres's is that of the whole cluster. pass, logged and alone give the gateway one
worker thread, the others leave it as it comes. In pass and alone it logs warnings only.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Requests that pass without a key, log off: CPU ÷ nginx's
    Pass,
    /// The same with the default log, ÷ nginx with its access log
    Logged,
    /// Requests that pass to an upstream behind TLS, log off: CPU ÷ nginx's; and new keys there
    Tls,
    /// One request at a time on one core: what it adds ÷ what nginx adds
    Alone,
    /// New keys at 64 and 256 at once, ÷ two statements by pgbench, and their CPU
    NewKeys,
    /// Syncs of the write-ahead log for each new key at 64 at once
    Syncs,
    /// Replays at 64 at once ÷ insert-or-look by pgbench
    Replays,
    /// Memory of idle connections
    Idle,
    /// New keys at 64 at once: the CPU of a second region's Postgres, ÷ two statements by pgbench
    Replica,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let tools = Tools::find(args.gateway)?;
    tokio::runtime::Runtime::new()?.block_on(run(&args.rows, args.write, tools))
}

async fn run(wanted: &[Name], write: bool, tools: Tools) -> Result<()> {
    let before = rows::load();
    let secure = wanted.is_empty() || wanted.contains(&Name::Tls);
    let mut stand = Stand::start(tools, secure).await?;
    let mut measured = Vec::new();
    for name in Name::value_variants().iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
        measured.extend(match name {
            Name::Pass => rows::pass(&mut stand, false).await?,
            Name::Logged => rows::pass(&mut stand, true).await?,
            Name::Tls => rows::secure(&mut stand).await?,
            Name::Alone => rows::alone(&mut stand).await?,
            Name::NewKeys => rows::new_keys(&mut stand).await?,
            Name::Syncs => rows::syncs(&mut stand).await?,
            Name::Replays => rows::replays(&mut stand).await?,
            Name::Idle => idle::rows(&mut stand).await?,
            Name::Replica => rows::replica(&mut stand).await?,
        });
    }
    let store = stand.describe();
    stand.end().await?;
    let shown = rows::show(&measured, &format!("{store}, load {before} before and {} after.", rows::load()));
    println!("{shown}");
    if write { rows::write(&shown) } else { Ok(()) }
}

//! The command line: arguments in, one command run, an exit code out.
//!
//! One file per command, each with its own arguments and help; `table` lines columns up, `http` asks an admin listener, `logging`
//! sets logs up. Neighbours: `config` checks files, `server`, `fleet` and `adapters` do the work. It must not decide
//! anything, and never prints a secret or a key that it was not given for that.

mod audit;
mod authority;
mod break_glass;
mod certs;
mod check;
mod coverage;
mod demo;
mod doubts;
mod drill;
mod explain;
mod http;
mod init;
mod instant;
mod janitor;
mod jobs;
mod key;
mod logging;
mod protocol;
mod region;
mod ring;
mod ring_change;
mod serve;
mod shadow;
mod status;
mod store;
mod table;
mod witness;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Errors;

/// A gateway that makes a retried API request take effect once, across regions.
#[derive(Parser)]
#[command(name = "onceway", version, max_term_width = 120, after_long_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Start here:
  onceway demo                                      three regions on this machine, and a guided tour
  onceway check config/us-east.toml                 is this configuration right? lists every mistake
  onceway config explain failover.lease             what does a key mean, and what may stand there?
  onceway ring show --ring config/ring.toml         who owns how much
  onceway serve --config config/us-east.toml        run one gateway of one region
  onceway witness --config config/witness.toml      run a third voter for two regions
  onceway init --config config/us-east.toml         found the deployment, once, when all its regions are up
  onceway status                                    who owns what, since when, and what do keys wait for?
  onceway region drain us-east                      take a region out of service; `resume` brings it back
  onceway doubts                                    which keys are in doubt? `onceway key` ends one by hand
  onceway audit compare provider.csv --tenant acme  what does a provider's ledger say differently? `audit export` prints all
  onceway coverage                                  which state-changing requests came without a key's protection?

Environment:
  ONCEWAY_LOG                what is logged to stderr, such as info or onceway=debug (default: [log] level)
  ONCEWAY_CONFIG             the region file, instead of --config
  ONCEWAY_RING               the ring file, instead of --ring
  ONCEWAY_ADMIN              an admin listener, instead of --admin
  ONCEWAY_ADMIN_TOKEN_FILE   the file with its token, instead of --token-file
  USER                       who acts by hand, instead of --actor

Exit codes:
  0  done     1  failed     2  wrong arguments or configuration     3  begun, not complete yet: run it again

`onceway COMMAND --help` explains a command with examples.";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Drill(drill::Drill),
    Check(check::Check),
    #[command(subcommand)]
    Config(explain::Command),
    #[command(subcommand)]
    Ring(ring::Command),
    Certs(certs::Certs),
    #[command(subcommand)]
    Store(store::Command),
    Serve(serve::Serve),
    Init(init::Init),
    #[command(subcommand)]
    Region(region::Command),
    Takeover(region::Takeover),
    BreakGlass(break_glass::BreakGlass),
    #[command(subcommand)]
    Protocol(protocol::Command),
    Audit(audit::Audit),
    Witness(witness::Witness),
    Status(status::Status),
    Doubts(doubts::Doubts),
    Jobs(jobs::Jobs),
    #[command(subcommand)]
    Key(key::Command),
    Coverage(coverage::Coverage),
    Shadow(shadow::Shadow),
    #[command(hide = true)]
    Janitor(janitor::Janitor),
}

/// Why a command did not end well, in words; which decides the exit code.
#[derive(Debug)]
enum Failure {
    /// It was tried and failed: exit code 1.
    Failed(String),
    /// The arguments or the configuration are wrong; nothing was tried: exit code 2.
    Bad(String),
    /// It was begun and is not complete: exit code 3.
    Incomplete(String),
}

impl Failure {
    /// Whatever went wrong, with its causes.
    fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::Failed(format!("{:#}", error.into()))
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        let count = errors.0.len();
        let things = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
        Self::Bad(format!("{things} in the configuration:\n{errors}"))
    }
}

/// Runs the command that the process's arguments name. Blocks until it has ended.
pub fn run() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Drill(drill) => drill.run(),
        Command::Check(check) => check.run(),
        Command::Config(command) => command.run(),
        Command::Ring(command) => command.run(),
        Command::Certs(certs) => certs.run(),
        Command::Store(command) => command.run(),
        Command::Serve(serve) => serve.run(),
        Command::Init(init) => init.run(),
        Command::Region(command) => command.run(),
        Command::Takeover(takeover) => takeover.run(),
        Command::BreakGlass(break_glass) => break_glass.run(),
        Command::Protocol(command) => command.run(),
        Command::Audit(audit) => audit.run(),
        Command::Witness(witness) => witness.run(),
        Command::Status(status) => status.run(),
        Command::Doubts(doubts) => doubts.run(),
        Command::Jobs(jobs) => jobs.run(),
        Command::Key(command) => command.run(),
        Command::Coverage(coverage) => coverage.run(),
        Command::Shadow(shadow) => shadow.run(),
        Command::Janitor(janitor) => janitor.run(),
    };
    let (code, text) = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(text)) => (1, text),
        Err(Failure::Bad(text)) => (2, text),
        Err(Failure::Incomplete(text)) => (3, text),
    };
    complain(&format!("onceway: {text}"));
    ExitCode::from(code)
}

/// Writes a line to stderr. Nobody may read it any more, and the exit code says the same.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Writes to stdout. A reader that has left (`| head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(|_| ())
}

/// Writes to stdout; false once the reader has left.
fn print_on(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Failed(format!("cannot write to stdout: {error}"))),
    }
}

/// Runs a future to its end on a runtime of its own.
fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::failed)?;
    runtime.block_on(future)
}

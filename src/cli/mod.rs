//! The command line: arguments in, one command run, an exit code out.
//!
//! [`commands`] lists the commands; each has a file with its arguments and help. Shared: `table`
//! lines columns up, `words` writes values, `http` asks an admin listener, `logging` sets logs up,
//! `process` prints, `failure` has the exit codes, `rehearsal` shows dry runs. It must not print a
//! secret, nor a key except one that it was given to print.

mod approve;
mod audit;
mod authority;
mod break_glass;
mod certs;
mod check;
mod commands;
mod coverage;
mod doubts;
mod explain;
mod failure;
mod http;
mod init;
mod jobs;
mod key;
#[cfg(feature = "lab")]
mod lab;
mod logging;
mod manual;
mod new;
mod process;
mod protocol;
mod region;
mod rehearsal;
mod ring;
mod ring_change;
mod serve;
mod shadow;
mod status;
mod stderr;
mod store;
mod table;
mod top;
mod witness;
mod words;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use self::failure::Failure;
use self::process::complain;

/// All commands with their arguments.
fn cli() -> Command {
    let about = "A gateway that makes a retried API request take effect once, across regions";
    let cli = Command::new("onceway").version(env!("CARGO_PKG_VERSION")).about(about);
    commands::define(cli.max_term_width(120).after_long_help(format!("Start here:\n{TRY}{HELP}")))
}

const TRY: &str = match cfg!(feature = "lab") {
    true => {
        "  onceway demo                                      three regions on this machine, and a guided tour\n"
    }
    false => "",
};

const HELP: &str = "\
  onceway new gateway                               the files of one gateway in front of your service
  onceway check config/us-east.toml                 is this configuration right? lists every mistake
  onceway config explain failover.lease             what does a key mean, and what may stand there?
  onceway ring show --ring config/ring.toml         who owns how much
  onceway serve --config config/us-east.toml        run one gateway of one region
  onceway witness --config config/witness.toml      run a third voter for two regions
  onceway init --config config/us-east.toml         found the deployment, once, when all its regions are up
  onceway status                                    who owns what, since when, and what do keys wait for?
  onceway top                                       the same, live, with rates
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
  ONCEWAY_ADMIN_CA           the file with its authorities, instead of --admin-ca
  USER                       who acts by hand, instead of --actor

Exit codes, of every command:
  0  done, and nothing was found that is looked for
  1  failed: it was refused, or what was asked does not answer (for coverage, audit compare and audit export that is 3); or a check found something
     (coverage, audit compare, drill, demo)
  2  wrong arguments or configuration: nothing was done
  3  not complete: begun, not possible yet, cut short or not known, so run it again; or a list has what somebody has to see to: keys in
     doubt (doubts), dead letters (jobs), keys that ran twice or may have (audit), a region that does not serve (region status)
  4  a loop of the gateway died (serve): it gave its lease up and left; start it again

With --json an answer is JSON on stdout, and a failure one object as the last line of stderr:
  {\"error\":\"failed\",\"exit_code\":1,\"message\":\"...\"}     error is failed, wrong, incomplete or died, for 1 to 4
With --dry-run an act says what would happen and what hinders it, changes nothing, and ends with the exit code that it would end with
(`store init` and `store reseed`: with a --wait that is long enough).

`onceway COMMAND --help` explains a command with examples.";

/// Runs the command that the process's arguments name. Blocks until it has ended.
pub fn run() -> ExitCode {
    let matches = match cli().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => match failure::misread(&error) {
            Some(failure) => return end(&failure, true),
            None => error.exit(),
        },
    };
    let as_json = wants_json(&matches);
    match commands::run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure, as_json),
    }
}

fn end(failure: &Failure, as_json: bool) -> ExitCode {
    complain(&failure.render(as_json));
    ExitCode::from(failure.code())
}

/// True if the innermost command that is named is asked for JSON.
fn wants_json(matches: &ArgMatches) -> bool {
    let own = matches.try_get_one::<bool>("json").ok().flatten().copied();
    own.unwrap_or(false) || matches.subcommand().is_some_and(|(_, below)| wants_json(below))
}

//! The command line: arguments in, one command run, an exit code out.
//!
//! [`commands`] lists the commands; each has a file with its arguments and help. None prints a
//! secret, nor a key except one that it was given to print.

mod audit;
mod authority;
mod certs;
mod check;
mod commands;
mod coverage;
mod doubts;
mod http;
mod init;
mod jobs;
mod key;
#[cfg(feature = "lab")]
mod lab;
mod new;
mod process;
mod protocol;
mod region;
mod rehearsal;
mod ring;
mod serve;
mod status;
mod stderr;
mod store;
mod table;
mod top;

use std::process::ExitCode;

use clap::ArgMatches;

/// Runs the command that the process's arguments name. Blocks until it has ended.
pub fn run() -> ExitCode {
    let matches = match commands::cli().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => match process::misread(&error) {
            Some(failure) => return failure.end(true),
            None => error.exit(),
        },
    };
    let as_json = wants_json(&matches);
    match commands::run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(as_json),
    }
}

/// True if the innermost command that is named is asked for JSON.
fn wants_json(matches: &ArgMatches) -> bool {
    let own = matches.try_get_one::<bool>("json").ok().flatten().copied();
    own.unwrap_or(false) || matches.subcommand().is_some_and(|(_, below)| wants_json(below))
}

//! All commands, each in one place: its name, its words for the first screen of `onceway --help`,
//! its arguments, and the function that runs it.
//!
//! A command's own file has its arguments and help. A test holds that the first screen has 80
//! columns.

use clap::{ArgMatches, Args, Command};

use super::failure::Failure;
#[cfg(feature = "lab")]
use super::lab;
use super::{
    approve, audit, break_glass, certs, check, coverage, doubts, explain, init, jobs, key, manual, new,
    protocol, region, ring, ring_change, serve, shadow, status, store, top, witness,
};

/// A command, or several below a common name.
struct Entry {
    name: &'static str,
    /// Words for the first screen; empty if it is not shown there.
    words: &'static str,
    kind: Kind,
}

enum Kind {
    One { define: fn(Command) -> Command, run: Box<dyn Fn(&ArgMatches) -> Result<(), Failure>> },
    Several { about: &'static str, commands: Vec<Entry> },
}

fn one<C: Args>(
    name: &'static str,
    words: &'static str,
    run: impl Fn(&C) -> Result<(), Failure> + 'static,
) -> Entry {
    let run = move |matches: &ArgMatches| match C::from_arg_matches(matches) {
        Ok(command) => run(&command),
        Err(error) => error.exit(),
    };
    Entry { name, words, kind: Kind::One { define: C::augment_args, run: Box::new(run) } }
}

fn several<const N: usize>(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    commands: [Entry; N],
) -> Entry {
    Entry { name, words, kind: Kind::Several { about, commands: commands.into() } }
}

/// The commands by purpose.
fn groups() -> Vec<(&'static str, Vec<Entry>)> {
    let look = [
        one("status", "is this gateway well, and who owns what?", status::Status::run),
        one("top", "all gateways, live", top::Top::run),
        one("doubts", "keys whose effect may or may not have happened", doubts::Doubts::run),
        one("jobs", "accepted requests that wait, and dead letters", jobs::Jobs::run),
        one("audit", "keys that ran at risk, or twice", audit::Audit::run),
        one("coverage", "changes of state that no key protects", coverage::Coverage::run),
        one("shadow", "what a gateway in shadow mode would have done", shadow::Shadow::run),
    ];
    let rehearse = [
        #[cfg(feature = "lab")]
        one("demo", "three regions on this machine, with a tour", lab::Demo::run),
        #[cfg(feature = "lab")]
        one("drill", "break three regions on purpose, and count effects", lab::Drill::run),
        #[cfg(feature = "lab")]
        one("sample-upstream", "a payments service to try with", lab::SampleUpstream::run),
        #[cfg(feature = "lab")]
        one("sample-postgres", "a Postgres to try with", lab::SamplePostgres::run),
        #[cfg(feature = "lab")]
        one("janitor", "", lab::Janitor::run),
    ];
    vec![
        (
            "Run",
            vec![
                one("serve", "one gateway of one region", serve::Serve::run),
                one("witness", "a third voter for two regions", witness::Witness::run),
            ],
        ),
        ("Look", look.into()),
        ("Act", acts().into()),
        ("Prepare", preparations().into()),
        ("Rehearse", rehearse.into()),
    ]
}

fn acts() -> [Entry; 6] {
    let key = [
        one("show", "", key::Show::run),
        one("settle", "", key::Settle::run),
        one("release", "", key::Release::run),
    ];
    let region = [
        one("drain", "", region::Drain::run),
        one("resume", "", region::Resume::run),
        one("status", "", region::Status::run),
        one("rebuild", "", region::Rebuild::run),
    ];
    let about_key = "Look at one key, or end an attempt in doubt by hand";
    let about_region =
        "Take a region out of service, bring it back, show its standing, or give it a new store";
    let about_protocol = "See which versions the regions speak with one another, and end an upgrade";
    [
        several("key", "look at one key; end its doubt by hand", about_key, key),
        several("region", "drain, resume, rebuild; its standing", about_region, region),
        one("takeover", "declare a region lost", region::Takeover::run),
        one("break-glass", "go on without a majority", break_glass::BreakGlass::run),
        several("protocol", "end an upgrade", about_protocol, [one("raise", "", protocol::Raise::run)]),
        one("approve", "approve what another operator asks for", approve::Approve::run),
    ]
}

fn preparations() -> [Entry; 9] {
    let store = [
        one("init", "", store::Init::run),
        one("check", "", store::Check::run),
        one("reseed", "", store::Reseed::run),
    ];
    let ring = [
        one("show", "", ring::Show::run),
        one("explain", "", ring::Explain::run),
        one("plan", "", ring_change::Plan::run),
        one("apply", "", ring_change::Apply::run),
    ];
    let about_config = "Know the configuration: the meaning of each key";
    let about_store =
        "Make a region's store, list its missing parts, or follow a peer anew whose slot was lost";
    let about_ring = "Look at a ring: its shares, and the place of a key; compare the file with the ring in force, and put it in force";
    [
        one("new", "write the files of a new deployment", new::New::run),
        one("check", "list every mistake in them", check::Check::run),
        several("config", "explain a setting", about_config, [one("explain", "", explain::Explain::run)]),
        one("certs", "make or revoke the regions' certificates", certs::Certs::run),
        several("store", "make a region's store, or check it", about_store, store),
        one("init", "found the deployment, once", init::Init::run),
        several("ring", "look at the ring; change it", about_ring, ring),
        one("completion", "completions for a shell", manual::Completion::run),
        one("man", "manual pages", manual::Man::run),
    ]
}

/// Defines the commands of `cli`, and shows them by purpose in its help.
pub fn define(cli: Command) -> Command {
    let (mut text, mut all) = (String::new(), Vec::new());
    for (purpose, commands) in groups() {
        let shown = commands.iter().filter(|command| !command.words.is_empty());
        for (number, Entry { name, words, .. }) in shown.enumerate() {
            let purpose = if number == 0 { purpose } else { "" };
            text.push_str(&format!("  {purpose:<9} {name:<16} {words}\n"));
        }
        all.extend(commands);
    }
    defined(cli, &all).help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands:\n{text}\nOptions:\n{{options}}{{after-help}}"
    ))
}

fn defined(cli: Command, commands: &[Entry]) -> Command {
    let commands = commands.iter().map(|Entry { name, kind, .. }| match kind {
        Kind::One { define, .. } => define(Command::new(*name)),
        Kind::Several { about, commands } => defined(Command::new(*name).about(*about), commands),
    });
    cli.subcommands(commands).subcommand_required(true).arg_required_else_help(true)
}

/// Runs the command that the arguments name. Blocks until it has ended.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    run_one_of(groups().into_iter().flat_map(|(_, commands)| commands), matches)
}

fn run_one_of(mut all: impl Iterator<Item = Entry>, matches: &ArgMatches) -> Result<(), Failure> {
    let named = matches.subcommand();
    let found = named.and_then(|(name, below)| Some((all.find(|one| one.name == name)?, below)));
    match found {
        Some((Entry { kind: Kind::One { run, .. }, .. }, below)) => run(below),
        Some((Entry { kind: Kind::Several { commands, .. }, .. }, below)) => {
            run_one_of(commands.into_iter(), below)
        }
        None => Err(Failure::Bad("name a command: `onceway --help` lists them".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_screen_fits_a_terminal() {
        let help = super::super::cli().render_help().to_string();
        assert!(help.lines().count() <= 40 && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}

//! All commands, each in one place: its name, its words for the first screen of `onceway --help`,
//! its arguments, and the function that runs it. `onceway completion` and `man` are made from them.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command};
use clap_complete::Shell;
use serde_json::json;

#[cfg(feature = "lab")]
use super::lab;
use super::process::{Failure, print, tell};
use super::{
    audit, certs, check, coverage, doubts, init, jobs, key, new, protocol, region, rehearsal, ring, serve,
    status, store, top,
};

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

struct Entry {
    name: &'static str,
    /// Words for the first screen; empty if it is not shown there.
    words: &'static str,
    kind: Kind,
}

type Run = Box<dyn Fn(&ArgMatches) -> Result<(), Failure>>;

enum Kind {
    One { define: fn(Command) -> Command, run: Run },
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

fn groups() -> Vec<(&'static str, Vec<Entry>)> {
    let look = [
        one("status", "is this gateway well, and who owns what?", status::Status::run),
        one("top", "all gateways, live", top::Top::run),
        one("doubts", "keys whose effect may or may not have happened", doubts::Doubts::run),
        one("jobs", "accepted requests that wait, and dead letters", jobs::Jobs::run),
        one("audit", "keys that ran at risk, or twice", audit::Audit::run),
        one("coverage", "changes of state that no key protects", coverage::Coverage::run),
        one("shadow", "what a gateway in shadow mode would have done", coverage::Shadow::run),
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
                one("witness", "a third voter for two regions", serve::Witness::run),
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
        one("break-glass", "go on without a majority", region::BreakGlass::run),
        several("protocol", "end an upgrade", about_protocol, [one("raise", "", protocol::Raise::run)]),
        one("approve", "approve what another operator asks for", rehearsal::Approve::run),
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
        one("plan", "", ring::Plan::run),
        one("apply", "", ring::Apply::run),
    ];
    let about_config = "Know the configuration: the meaning of each key";
    let about_store =
        "Make a region's store, list its missing parts, or follow a peer anew whose slot was lost";
    let about_ring = "Look at a ring: its shares, and the place of a key; compare the file with the ring in force, and put it in force";
    [
        one("new", "write the files of a new deployment", new::New::run),
        one("check", "list every mistake in them", check::Check::run),
        several("config", "explain a setting", about_config, [one("explain", "", check::Explain::run)]),
        one("certs", "make or revoke the regions' certificates", certs::Certs::run),
        several("store", "make a region's store, or check it", about_store, store),
        one("init", "found the deployment, once", init::Init::run),
        several("ring", "look at the ring; change it", about_ring, ring),
        one("completion", "completions for a shell", Completion::run),
        one("man", "manual pages", Man::run),
    ]
}

pub fn cli() -> Command {
    let about = "A gateway that makes a retried API request take effect once, across regions";
    let cli = Command::new("onceway").version(env!("CARGO_PKG_VERSION")).about(about);
    define(cli.max_term_width(120).after_long_help(format!("Start here:\n{TRY}{HELP}")))
}

/// Defines the commands of `cli`, and shows them by purpose in its help.
fn define(cli: Command) -> Command {
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

/// Print a shell's completions of all commands and options.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway completion bash > /etc/bash_completion.d/onceway
  onceway completion zsh > ~/.zfunc/_onceway                      a folder of fpath
  onceway completion fish > ~/.config/fish/completions/onceway.fish

Exit codes: 0 printed; 2 wrong arguments.")]
struct Completion {
    /// The shell.
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Print the manual page, or write one page for each command.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway man | man -l -
  onceway man /usr/local/share/man/man1        onceway.1, onceway-region-drain.1 and so on

Exit codes: 0 printed or written; 1 a page could not be written; 2 wrong arguments.")]
struct Man {
    /// The folder to write all pages into; made if it does not exist.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON: dir and pages.
    #[arg(long, requires = "dir")]
    json: bool,
}

impl Completion {
    fn run(&self) -> Result<(), Failure> {
        let shell = match self.shell.as_str() {
            "zsh" => Shell::Zsh,
            "fish" => Shell::Fish,
            _bash => Shell::Bash,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut cli(), "onceway", &mut script);
        print(&String::from_utf8(script)?)
    }
}

impl Man {
    fn run(&self) -> Result<(), Failure> {
        let mut cli = cli();
        cli.build();
        let Some(dir) = &self.dir else {
            return print(&page(&cli)?);
        };
        let failed =
            |error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(failed)?;
        let mut pages = Vec::new();
        each(&cli, &mut |command| {
            let name = format!("{}.1", command.get_display_name().unwrap_or_else(|| command.get_name()));
            std::fs::write(dir.join(&name), page(command)?).map_err(failed)?;
            pages.push(name);
            Ok(())
        })?;
        let text = format!("{}: {} pages\n", dir.display(), pages.len());
        tell(self.json, &json!({ "dir": dir, "pages": pages }), &text)
    }
}

/// Calls `what` for the command and all shown commands below it.
fn each(command: &Command, what: &mut impl FnMut(&Command) -> Result<(), Failure>) -> Result<(), Failure> {
    what(command)?;
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    for below in shown {
        each(below, what)?;
    }
    Ok(())
}

fn page(command: &Command) -> Result<String, Failure> {
    let mut roff = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut roff)?;
    Ok(String::from_utf8(roff)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_screen_fits_a_terminal() {
        let help = super::cli().render_help().to_string();
        assert!(help.lines().count() <= 40 && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}

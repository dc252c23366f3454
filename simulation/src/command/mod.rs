//! The commands of `onceway-sim`.
//!
//! Results go to standard output, progress to standard error. It must not judge a result except by
//! the exit code: 0 held, 1 an invariant broke, 2 bad input.

mod batch;
mod kept;
mod plants;
mod points;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use onceway::protocol::plant::Check;
use serde::Serialize;

use crate::play;
use crate::report::Report;
use crate::scenario::directed::directed;
use crate::scenario::fault::Kind;
use crate::scenario::vary::Setting;
use crate::scenario::{self, Scenario, find};
use crate::study::Point;
use batch::Batch;
use show::say;

const HELD: u8 = 0;
const BROKE: u8 = 1;
const BAD_INPUT: u8 = 2;

/// Play failovers of a whole deployment in simulated time, from a seed.
///
/// The gateways and the protocol are the real ones; clocks, networks, stores, upstreams and clients
/// are simulated. A seed does the same each time. After each run everything is mended, and every
/// key must end.
#[derive(Parser)]
#[command(name = "onceway-sim", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  onceway-sim list                                   the scenarios that come along
  onceway-sim run region-loss                        one run, its result as a table
  onceway-sim seeds swarm --count 1000               a thousand runs on all cores
  onceway-sim sweep region-loss --vary failover.multiple=0,1,2,3,5   which multiple?
  onceway-sim report region-loss --count 500         a page of tables
  onceway-sim compare region-loss                    hasty, patient, and with escrow
  onceway-sim replay swarm --seed 17                 what happened in one of them, line by line
  onceway-sim seeds swarm --count 50 --plant window  what one safety check is worth

Exit codes: 0 every invariant held, 1 one broke or a batch never saw what its scenario expects, 2 what was asked for cannot be played.";

#[derive(Subcommand)]
enum Command {
    /// Play one seed and show its outcome.
    Run {
        #[command(flatten)]
        what: What,
        /// The run's seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Print the outcome as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Play many seeds on all cores and add them up.
    ///
    /// With --plant, the check's own scenario is played besides, for some seeds (`plants` names
    /// it): there the check's absence shows. The exit code is 1 if either breaks, so it is 1 for
    /// every check that is of use.
    Seeds {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        seeds: Many,
        /// Print the sums as one JSON object.
        #[arg(long)]
        json: bool,
        /// Add the seeds that break to the kept seeds.
        #[arg(long, conflicts_with = "plant")]
        keep: bool,
    },
    /// Play the same seeds at every combination of some values, and show the result of each.
    ///
    /// One row a point: doubles, keys refused and in doubt, time without service, latency, hops
    /// between regions. A ring file with a multiple below 2 is refused, but a sweep may have one:
    /// unsafe_multiple = true is set for such points, and the output says so. Doubles are expected
    /// there. They break no invariant as long as their claims say that they ran at risk, and a
    /// journal lists them.
    #[command(after_help = SWEEPS)]
    Sweep {
        #[command(flatten)]
        swept: Swept,
        /// Print the study as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Play the same seeds at the multiples 0 to 3, and with each kind of escrow on all routes.
    ///
    /// The same clients send the same keys at the same times, and the same things break. Effects
    /// are counted at the upstreams.
    Compare {
        #[command(flatten)]
        deployment: Described,
        #[command(flatten)]
        seeds: Many,
        /// Print the study as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Sweep, compare, and write one page.
    ///
    /// The page needs no network and no script. The table is printed, too. Without
    /// --vary the multiples 0, 1, 2, 3 and 5 are swept.
    #[command(after_help = REPORTS)]
    Report {
        #[command(flatten)]
        swept: Swept,
        /// The page's file; SCENARIO.html by default.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Write the same as one JSON object; "-" prints it instead of the table.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Remove each safety check in turn, and count the seeds that notice: exit code 1 if one goes
    /// unnoticed.
    ///
    /// Scenarios are tried in this order, then the one that was written for the check. The search
    /// ends at the first scenario with a seed that breaks without the check and not with it. The
    /// check's own scenario is played ten seeds at a time.
    Plants {
        /// Scenarios' files, or names of some that come along.
        #[arg(required = true)]
        scenarios: Vec<String>,
        /// The number of seeds, for each check and scenario.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        count: u64,
        /// Remove this check only. May be given more than once.
        #[arg(long = "plant", value_name = "NAME")]
        only: Vec<String>,
    },
    /// Tell what happened in one run, line by line, on standard output.
    Replay {
        #[command(flatten)]
        what: What,
        /// The run's seed.
        #[arg(long)]
        seed: u64,
    },
    /// Replay the seeds that once broke something.
    Kept,
    /// List the scenarios that come along.
    List,
    /// List the kinds of faults.
    Faults,
}

const SWEEPS: &str = "Examples:
  onceway-sim sweep region-loss --vary failover.multiple=0,1,2,3,5            which multiple?
  onceway-sim sweep region-loss --vary failover.multiple=2,3 --vary failover.floor=500ms,1s,3s
  onceway-sim sweep region-loss --vary route.escrow=off,claim,claim+answer    what escrow is worth
  onceway-sim sweep region-loss --vary failover.lease=2s,3s,10s --set failover.multiple=3";

const REPORTS: &str = "Examples:
  onceway-sim report region-loss --count 500                                  region-loss.html
  onceway-sim report my.toml --vary failover.multiple=2,3,5 --vary failover.floor=1s,3s --out my.html
  onceway-sim report region-loss --count 500 --json -                         the figures only";

#[derive(clap::Args)]
struct Described {
    /// A scenario's file, or the name of one that comes along.
    scenario: String,
    /// Change one value of the scenario, its ring file (failover., clock., pin., heartbeat) or all
    /// its routes (route.), such as failover.multiple=3. May be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
}

impl Described {
    fn load(&self) -> Result<(PathBuf, Arc<Scenario>), String> {
        let path = find::find(&self.scenario)?;
        let scenario = scenario::load(&path, &self.settings).map_err(|errors| errors.to_string())?;
        Ok((path, Arc::new(scenario)))
    }
}

#[derive(clap::Args)]
struct Swept {
    #[command(flatten)]
    deployment: Described,
    /// One key and its values, such as failover.lease=2s,3s. Given more than once: every
    /// combination.
    #[arg(long, value_name = "KEY=V,V...", default_value = "failover.multiple=0,1,2,3,5")]
    vary: Vec<String>,
    #[command(flatten)]
    seeds: Many,
}

#[derive(clap::Args)]
struct Many {
    /// The number of seeds; of a study, at each point.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
}

#[derive(clap::Args)]
struct What {
    #[command(flatten)]
    deployment: Described,
    /// Remove one safety check; `list` names them.
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
}

impl What {
    fn load(&self) -> Result<(PathBuf, Arc<Scenario>, Option<Check>), String> {
        let plant = self.plant.as_deref().map(plant).transpose()?;
        let (path, scenario) = self.deployment.load()?;
        Ok((path, scenario, plant))
    }
}

fn plant(name: &str) -> Result<Check, String> {
    let found = Check::ALL.iter().copied().find(|plant| plant.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Check::ALL.iter().map(|plant| plant.name()).collect();
        format!("there is no safety check {name:?} to remove: there are {}", names.join(", "))
    })
}

/// Runs the command of the arguments.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { BAD_INPUT } else { HELD });
        }
    };
    match perform(arguments.command) {
        Ok(held) => ExitCode::from(if held { HELD } else { BROKE }),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Performs a command. Returns true if every invariant held.
fn perform(command: Command) -> Result<bool, String> {
    match command {
        Command::List => {
            for name in find::names() {
                say!("{name:<24} {}", scenario::as_it_is(&name)?.title);
            }
            Ok(true)
        }
        Command::Kept => kept::replay(),
        Command::Faults => {
            for kind in Kind::all() {
                let named = if kind.is_drawn() { "" } else { " Drawn where it is named only." };
                say!("{:<26} {}{named}", kind.name(), kind.about());
            }
            Ok(true)
        }
        Command::Run { what, .. } | Command::Seeds { what, .. } | Command::Replay { what, .. }
            if what.plant.as_deref() == Some("list") =>
        {
            Check::ALL.iter().for_each(|plant| say!("{:<26} {}", plant.name(), plant.about()));
            Ok(true)
        }
        Command::Run { what, seed, json } => {
            let (_, scenario, plant) = what.load()?;
            let outcome = batch::play(&scenario, seed, plant);
            shown(json, &outcome, || show::one(&scenario, &outcome))?;
            Ok(outcome.held())
        }
        Command::Seeds { what, seeds: many, json, keep } => seeds(&what, &many, json, keep),
        Command::Sweep { swept: Swept { deployment, vary, seeds }, json } => {
            study(&deployment, &seeds, json, |path, settings| points::grid(path, settings, &vary))
        }
        Command::Compare { deployment, seeds, json } => study(&deployment, &seeds, json, points::compared),
        Command::Report { swept: Swept { deployment, vary, seeds }, out, json } => {
            let (path, scenario) = deployment.load()?;
            let mut points = points::grid(&path, &deployment.settings, &vary)?;
            points::join(&mut points, points::compared(&path, &deployment.settings)?);
            let study = points::play(&scenario, &points, seeds.from, seeds.count);
            let shown = batch::play(&scenario, seeds.from, None);
            points::report(&path, Report { study, shown }, out, json)
        }
        Command::Plants { scenarios, count, only } => {
            let scenarios = scenarios.iter().map(|name| scenario::as_it_is(name)).collect::<Result<_, _>>();
            let only = only.iter().map(|name| plant(name)).collect::<Result<Vec<_>, _>>()?;
            plants::table(scenarios?, count, if only.is_empty() { &Check::ALL[..] } else { &only })
        }
        Command::Replay { what, seed } => {
            let (_, scenario, plant) = what.load()?;
            let played = batch::planted(plant, || play::play(&scenario, seed, true));
            played.story.iter().for_each(|line| say!("{line}"));
            Ok(played.outcome.held())
        }
    }
}

/// Plays these seeds, and those of the removed check's directed scenario, and shows them.
fn seeds(what: &What, seeds: &Many, json: bool, keep: bool) -> Result<bool, String> {
    let (path, scenario, plant) = what.load()?;
    // There are no seeds beyond the last number.
    let count = seeds.count.min(u64::MAX - seeds.from);
    let mut played = Batch::play(&scenario, seeds.from, count, plant);
    if let Some(check) = plant {
        let own = directed(check);
        let scenario = scenario::as_it_is(own.scenario)?;
        played.directed = Some(Box::new(Batch::play(&scenario, own.from, own.seeds, plant)));
    }
    shown(json, &played, || show::many(&path, &scenario, &played))?;
    if keep {
        kept::add(&path, &played.broke)?;
    }
    Ok(played.held() && played.missing(&scenario).is_empty())
}

/// Makes the points, plays them and shows them. Returns true if every invariant held.
fn study(
    deployment: &Described,
    seeds: &Many,
    json: bool,
    points: impl FnOnce(&Path, &[Setting]) -> Result<Vec<Point>, String>,
) -> Result<bool, String> {
    let points = points(&find::find(&deployment.scenario)?, &deployment.settings)?;
    let (path, scenario) = deployment.load()?;
    let study = points::play(&scenario, &points, seeds.from, seeds.count);
    shown(json, &study, || points::show(&path, &study))?;
    Ok(study.held())
}

/// Prints a result as JSON, or for people.
fn shown(json: bool, result: &impl Serialize, for_people: impl FnOnce()) -> Result<(), String> {
    match json {
        true => say!("{}", serde_json::to_string(result).map_err(|error| error.to_string())?),
        false => for_people(),
    }
    Ok(())
}

//! Results for a terminal: lines on standard output.
//!
//! Every command of this folder prints with [`say!`]. It does not end the process if its reader has
//! left, such as `| head`. That is no failure, and the exit code still reports the result.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use super::batch::{Batch, Broke};
use crate::outcome::{FaultSpan, Keys, Outage, Outcome, Requests};
use crate::scenario::{Scenario, find};
use crate::sums;
use crate::words::joined;

/// Prints one line, like `println!`, and goes on if the reader has left.
macro_rules! say {
    () => {
        $crate::command::show::line(format_args!(""))
    };
    ($($text:tt)*) => {
        $crate::command::show::line(format_args!($($text)*))
    };
}
pub(super) use say;

/// Writes one line. Panics if that fails, unless its reader has left: a full disk must not pass for
/// a result.
pub fn line(text: Arguments<'_>) {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => panic!("cannot write to standard output: {error}"),
    }
}

pub fn one(scenario: &Scenario, outcome: &Outcome) {
    say!("{}: {}", scenario.name, scenario.title);
    say!("seed {}, {} s simulated", outcome.seed, outcome.simulated_ms / 1_000);
    keys(&outcome.keys);
    requests(&outcome.requests);
    latency(&outcome.latency_ms);
    for fault in &outcome.faults {
        let mattered = if fault.mattered { "" } else { "; nobody noticed" };
        let FaultSpan { kind, place, from_ms, to_ms, .. } = fault;
        say!("fault         {kind} at {place}, {from_ms} to {to_ms} ms{mattered}");
    }
    for outage in &outcome.outages {
        let Outage { home, route, from_ms, to_ms } = outage;
        say!("no service    {route} of {home}, {from_ms} to {to_ms} ms");
    }
    for (what, count) in outcome.happened.iter().filter(|(_, count)| **count > 0) {
        say!("happened      {what}: {count}");
    }
    for breach in &outcome.breaches {
        say!("BROKE         invariant {} at {} ms: {}", breach.invariant, breach.at_ms, breach.text);
    }
    say!("{}", if outcome.held() { "Every invariant held." } else { "An invariant broke." });
}

pub fn many(path: &Path, scenario: &Scenario, batch: &Batch) {
    say!("{}: {}", scenario.name, scenario.title);
    let last = batch.from + batch.count.saturating_sub(1);
    say!(
        "seeds {} to {last}, {:.1} h simulated in {:.1} s on {} threads: {:.0} times real time per thread, {:.0} seeds per hour, {:.0} events/s",
        batch.from,
        batch.simulated_ms as f64 / 3_600_000.0,
        batch.took_ms as f64 / 1_000.0,
        batch.threads,
        batch.speed(),
        batch.count as f64 * 3_600_000.0 / batch.took_ms.max(1) as f64,
        batch.events as f64 * 1_000.0 / batch.took_ms.max(1) as f64,
    );
    keys(&batch.keys);
    requests(&batch.requests);
    latency(&batch.latency_ms);
    if !batch.faults.is_empty() {
        say!("\n{:<26} {:>9} {:>9}", "fault", "injected", "mattered");
        for (kind, count) in &batch.faults {
            say!("{kind:<26} {:>9} {:>9}", count.injected, count.mattered);
        }
    }
    say!();
    for (what, count) in &batch.happened {
        let never = if *count == 0 { "  (never)" } else { "" };
        say!("happened      {what}: {count}{never}");
    }
    for name in batch.missing(scenario) {
        say!("NEVER         {name}: expected of {} seeds", scenario.expects.of);
    }
    for Broke { seed, breach } in batch.broke.iter().take(10) {
        say!("BROKE         seed {seed}: invariant {}: {}", breach.invariant, breach.text);
        let plant = batch.plant.as_ref().map(|plant| format!(" --plant {plant}")).unwrap_or_default();
        say!("              onceway-sim replay {} --seed {seed}{plant}", find::shown(path));
    }
    match batch.broke.len() {
        0 => say!("Every invariant held in all {} seeds.", batch.count),
        broke => say!("An invariant broke in {broke} of {} seeds.", batch.count),
    }
    if let Some(directed) = &batch.directed {
        let Batch { scenario, count, broke, .. } = &**directed;
        let first = broke.first().map(|first| format!(": invariant {}", first.breach.invariant));
        say!(
            "besides       {scenario}, where the absence of that check shows: broke in {} of {count} seeds{}",
            broke.len(),
            first.unwrap_or_default()
        );
    }
}

fn keys(keys: &Keys) {
    let Keys { begun, answered, given_up, in_doubt, .. } = keys;
    say!(
        "keys          {begun} begun, {answered} answered, {given_up} given up by their clients, {in_doubt} in doubt in the end"
    );
    let Keys { doubles, doubles_listed, doubles_allowed, doubles_gone, .. } = keys;
    say!(
        "doubles       {doubles}: {doubles_allowed} on routes that ask for a second effect, {doubles_gone} of claims that had not left a lost region, {doubles_listed} listed by a journal"
    );
}

fn requests(requests: &Requests) {
    let refused = joined(requests.refused.iter().map(|(code, count)| format!("{code} {count}")), ", ");
    let refused = if refused.is_empty() { "none" } else { &refused };
    let Requests { sent, answered, replayed, broken, timed_out, forwarded, .. } = requests;
    say!(
        "requests      {sent} sent, {answered} answered, {replayed} replayed, {forwarded} forwarded, {broken} broke, {timed_out} timed out; refused: {refused}"
    );
}

fn latency(sorted: &[u64]) {
    let [half, most, all] = [500, 990, 1_000].map(|thousandths| sums::at(sorted, thousandths));
    say!(
        "latency       p50 {half} ms, p99 {most} ms, longest {all} ms, from a key's first request to its answer"
    );
}

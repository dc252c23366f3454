//! The hunt: each mutant against the cheapest suite first, until a test fails.
//!
//! Only tests that reach a mutant run. Tests that noticed other mutants of the file lately come
//! first, then short tests. Each outcome is stored at once, so a stopped run can go on.
//! This file must not count a failure that the mutant did not cause. In a suite with real processes
//! a test has to fail twice.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::results::Results;
use crate::site::Site;
use crate::suites::{End, PROGRAM, Traced};

/// Bounds of a hunt.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Moment after which no mutant begins. None: no limit.
    pub until: Option<Instant>,
    /// Limit for the tests of one mutant in one suite, by their times without a mutant. The first
    /// test runs even if it takes longer.
    pub at_most: Duration,
}

/// Outcome of a mutant in one suite.
struct Tried {
    noticed: Option<String>,
    partly: bool,
}

/// Tries each site that this suite reaches and that no suite has noticed yet. Blocks until all are
/// tried or the time is over. Returns the number of sites that did not begin in time.
///
/// # Errors
/// If a test cannot be run, or a result cannot be written.
pub fn hunt(
    traced: &Traced,
    sites: &[&Site],
    results: &mut Results,
    bounds: Bounds,
) -> anyhow::Result<usize> {
    let name = traced.suite.name;
    let wanted = |site: &&&Site| {
        let known = results.of(site);
        traced.known.reach.contains_key(&site.number)
            && known.noticed.is_none()
            && !known.refused
            && !known.passed.contains(name)
    };
    let queue: VecDeque<&Site> = sites.iter().filter(wanted).copied().collect();
    let all = queue.len();
    let (queue, results) = (Mutex::new(queue), Mutex::new(results));
    let lately: Mutex<BTreeMap<String, VecDeque<String>>> = Mutex::default();
    let work = || -> anyhow::Result<()> {
        loop {
            if bounds.until.is_some_and(|until| Instant::now() > until) {
                return Ok(());
            }
            let Some(site) = queue.lock().expect("no panic").pop_front() else { return Ok(()) };
            let favourites = lately.lock().expect("no panic").get(&site.file).cloned().unwrap_or_default();
            let tried = attempt(traced, site, &favourites, bounds.at_most)?;
            let mut results = results.lock().expect("no panic");
            let mut outcome = results.of(site);
            match tried.noticed {
                Some(test) => {
                    let mut lately = lately.lock().expect("no panic");
                    let tests = lately.entry(site.file.clone()).or_default();
                    tests.retain(|other| *other != test);
                    tests.push_front(test.clone());
                    tests.truncate(20);
                    outcome.noticed = Some(format!("{name}: {test}"));
                }
                None => {
                    eprintln!("{name}: not noticed: {}:{}: {}", site.file, site.lines.0, site.change);
                    outcome.passed.insert(name.to_owned());
                    if tried.partly {
                        outcome.partly.insert(name.to_owned());
                    }
                }
            }
            results.enter(outcome)?;
            let left = queue.lock().expect("no panic").len();
            if left.is_multiple_of(50) {
                eprintln!("{name}: {left} of {all} left");
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..traced.suite.beside()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    Ok(queue.into_inner().expect("no panic").len())
}

/// Runs the tests that reach a site, in growing batches, until one fails or hangs.
fn attempt(
    traced: &Traced,
    site: &Site,
    favourites: &VecDeque<String>,
    at_most: Duration,
) -> anyhow::Result<Tried> {
    let place = |test: &String| favourites.iter().position(|other| other == test).unwrap_or(usize::MAX);
    let took = |test: &String| traced.known.took.get(test).copied().unwrap_or_default();
    let mut tests: Vec<String> =
        traced.known.reach.get(&site.number).into_iter().flatten().cloned().collect();
    tests.sort_by_key(|test| (place(test), took(test)));
    let (mut spent, mut size) = (Duration::ZERO, Duration::from_millis(300));
    let mut rest = tests.as_slice();
    while !rest.is_empty() {
        let mut long = Duration::ZERO;
        let within = rest.iter().take_while(|test| {
            long += took(test);
            long <= size && spent + long <= at_most
        });
        // A test longer than the batch's limit is a batch of its own.
        let count = within.count().max(usize::from(spent + took(&rest[0]) <= at_most || spent.is_zero()));
        if count == 0 {
            return Ok(Tried { noticed: None, partly: true });
        }
        let (batch, after) = rest.split_at(count);
        let mut end = traced.run(site.number, batch)?;
        if let (true, End::Failed(test)) = (traced.suite.real, &end) {
            end = traced.run(site.number, once_more(test, batch))?;
        }
        match end {
            End::Passed => {}
            End::Failed(test) => return Ok(Tried { noticed: Some(test), partly: false }),
            End::Late => return Ok(Tried { noticed: Some("(hangs)".to_owned()), partly: false }),
        }
        spent += batch.iter().map(took).sum::<Duration>();
        size *= 4;
        rest = after;
    }
    Ok(Tried { noticed: None, partly: false })
}

/// The tests that run once more after a failure. A program that ended without a word names no test,
/// so its whole batch runs again.
fn once_more<'a>(failed: &'a String, batch: &'a [String]) -> &'a [String] {
    if failed == PROGRAM { batch } else { std::slice::from_ref(failed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ended_without_a_word_runs_its_batch_again() {
        let batch = ["a::b".to_owned(), "a::c".to_owned()];
        assert_eq!(once_more(&PROGRAM.to_owned(), &batch), batch);
        assert_eq!(once_more(&batch[1], &batch), ["a::c".to_owned()]);
    }
}

//! A dense row of fresh keys with one home, to see when they run and which region runs them.
//!
//! While things are broken, a probe is sent once, so that its answer is about its own moment only.
//! Afterwards its key is brought to its end like any other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::ask::Exchange;
use super::load::{Field, KeyLife, PATIENCE};
use crate::{lock, wait};

const MOST: usize = 24;

#[derive(Clone, Debug)]
pub struct Probe {
    pub key: String,
    pub class: usize,
    pub order: Vec<usize>,
    pub exchange: Exchange,
}

impl Probe {
    pub fn life(self) -> KeyLife {
        KeyLife::begun(self.key, self.class, vec![self.exchange])
    }
}

#[derive(Clone, Debug)]
pub struct Aim {
    /// Makes its keys different from those of other probers.
    pub word: &'static str,
    /// Homes of the keys, and regions to ask, by number, in rotation.
    pub homes: Vec<usize>,
    pub via: Vec<usize>,
    pub class: usize,
    pub every: Duration,
}

pub struct Prober {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    probes: Arc<Mutex<Vec<Probe>>>,
}

impl Prober {
    pub fn start(field: &Arc<Field>, aim: Aim) -> Prober {
        let (stop, stopped) = watch::channel(false);
        let probes = Arc::default();
        let task = tokio::spawn(probe(field.clone(), aim, stopped, Arc::clone(&probes)));
        Prober { stop, task, probes }
    }

    /// The probes that are over, with their results.
    pub fn list_probes(&self) -> Vec<Probe> {
        lock(&self.probes).clone()
    }

    /// Ends the prober. Returns all its probes, in the order in which they were sent.
    pub async fn end(self) -> Result<Vec<Probe>> {
        self.stop.send_replace(true);
        self.task.await.context("the prober")?;
        let mut probes = std::mem::take(&mut *lock(&self.probes));
        probes.sort_by_key(|probe| probe.exchange.sent);
        Ok(probes)
    }
}

async fn probe(
    field: Arc<Field>,
    aim: Aim,
    mut stopped: watch::Receiver<bool>,
    probes: Arc<Mutex<Vec<Probe>>>,
) {
    let mut under_way = JoinSet::new();
    let (mut due, mut last_key) = (Instant::now(), 0);
    for number in 0_usize.. {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            () = wait::pause_until(due) => due += aim.every,
        }
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= MOST {
            continue;
        }
        let home = aim.homes[number % aim.homes.len()];
        let (key, order) = loop {
            last_key += 1;
            let key = format!("{}-{}-{last_key}", field.mark(), aim.word);
            let order = field.order(&key);
            if order.first() == Some(&home) {
                break (key, order);
            }
        };
        let (field, class, via) = (field.clone(), aim.class, aim.via[number % aim.via.len()]);
        let probes = probes.clone();
        under_way.spawn(async move {
            let exchange = field.ask(via, class, &key, PATIENCE).await;
            lock(&probes).push(Probe { key, class, order, exchange });
        });
    }
    while under_way.join_next().await.is_some() {}
}

/// Time from `moment` to the first answer from elsewhere, for a key that began after it.
pub fn first_run_elsewhere(
    probes: &[Probe],
    names: &[String],
    home: usize,
    moment: Instant,
) -> Option<Duration> {
    let run = |probe: &&Probe| {
        let answer = probe.exchange.received.success();
        probe.order.first() == Some(&home)
            && probe.exchange.sent > moment
            && answer.is_some_and(|answer| !answer.replayed && answer.by != names[home])
    };
    probes.iter().filter(run).map(|probe| probe.exchange.done - moment).min()
}

/// The longest pause per home and next region of the order. A pause lies between two neighbouring
/// successes with a refused probe between them, from the end of the one to the end of the other. A
/// success that took longer itself counts with its own time. If every probe ran at once, there was
/// no pause.
pub fn pauses(probes: &[Probe], names: &[String]) -> Vec<(String, Duration)> {
    let mut buckets: BTreeMap<(Option<usize>, Option<usize>), Vec<&Exchange>> = BTreeMap::new();
    for probe in probes {
        let bucket = (probe.order.first().copied(), probe.order.get(1).copied());
        buckets.entry(bucket).or_default().push(&probe.exchange);
    }
    let name =
        |number: Option<usize>| number.and_then(|number| names.get(number)).map_or("nobody", String::as_str);
    let named = |((home, next), of): (_, Vec<&Exchange>)| {
        (format!("{} then {}", name(home), name(next)), longest_pause(of))
    };
    buckets.into_iter().map(named).collect()
}

/// The longest pause between two successes around a refusal, and the longest time of a success.
pub fn longest_pause(mut exchanges: Vec<&Exchange>) -> Duration {
    exchanges.sort_by_key(|exchange| exchange.sent);
    let (mut longest, mut refused, mut last) = (Duration::ZERO, false, None);
    for exchange in exchanges {
        if exchange.received.success().is_none() {
            refused = true;
            continue;
        }
        longest = longest.max(exchange.done - exchange.sent);
        if let Some(last) = last.filter(|_| refused) {
            longest = longest.max(exchange.done - last);
        }
        (refused, last) = (false, Some(exchange.done));
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Answered, Received};
    use super::*;

    #[test]
    fn a_pause_is_between_successes_around_a_refusal_or_a_slow_success() {
        let begun = Instant::now();
        let exchange = |sent: u64, took: u64, status: u16| {
            let answer = Answered { status, ..Answered::default() };
            let sent = begun + Duration::from_millis(sent);
            let done = sent + Duration::from_millis(took);
            Exchange { via: 0, sent, done, received: Received::Answer(answer) }
        };
        let longest = |all: &[Exchange]| longest_pause(all.iter().collect()).as_millis();
        let (first, last) = (exchange(0, 10, 201), exchange(900, 20, 201));
        assert_eq!(longest(&[first.clone(), last.clone()]), 20, "nobody asked in between");
        assert_eq!(longest(&[first.clone(), exchange(400, 5, 503), last.clone()]), 910);
        assert_eq!(longest(&[first, exchange(100, 700, 201), last]), 700);
    }
}

//! Verdict of a soak: loss, breakage, leaks and doubles that no other drill holds.
//!
//! A connection may break only when a gateway of its region has just ended. Nothing else is
//! excused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::ask::Received;
use super::load::{CLASSES, End, KeyLife, Recovery};
use super::meter::{MEMORY, Meter, STORE, descriptors_slack, most_kept};
use super::report::Report;
use super::run::Run;
use crate::{lock, wait};

const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Routes changed, and read by all.
    pub reloads: u64,
    /// Certificates replaced, and shown by all.
    pub rotations: u64,
    pub stops: u64,
    pub kills: u64,
    pub drains: u64,
}

/// A time in which connections to a region may break, because one of its gateways ends.
#[derive(Clone, Copy, Debug)]
pub struct Harm {
    pub region: usize,
    /// Moment before the gateway was made to end.
    pub from: Instant,
    /// Moment when it had served again for a while.
    pub to: Instant,
}

pub struct Soaked {
    pub meter: Meter,
    pub harms: Vec<Harm>,
    pub counts: Counts,
    pub begun: Instant,
    pub ended: Instant,
}

/// Holds a soak's bounds. `audited` are the keys of some audit; true if one is not clean.
pub async fn hold(
    soaked: &Soaked,
    run: &Run<'_>,
    audited: &BTreeMap<String, bool>,
    report: &mut Report,
) -> Result<()> {
    let lives: Vec<KeyLife> = run.field.lives().clone();
    let Counts { reloads, rotations, stops, kills, drains } = soaked.counts;
    for (what, count) in
        [("reload", reloads), ("rotation", rotations), ("stop", stops), ("kill", kills), ("drain", drains)]
    {
        if count == 0 {
            report.broke(format!("there was no {what}: the soak was too short to say anything"));
        }
    }
    report.numbers.insert("events", json!(soaked.counts));
    report.numbers.insert("soaked_s", (soaked.ended - soaked.begun).as_secs().into());
    let doubles: u64 =
        report.classes.values().map(|class| class.doubles.saturating_sub(class.doubles_by_rerun)).sum();
    let what = format!("{doubles} keys had more than one effect, and no route asked for it");
    report.none("double_effects", doubles, what);
    let unclean = audited.values().filter(|unclean| **unclean).count() as u64;
    let what = format!("the audits list {unclean} keys that ran twice, or perhaps");
    report.none("audit_not_clean", unclean, what);
    let lost = soaked.meter.claims_lost();
    report.none("claims_lost", lost, format!("{lost} outcomes found no claim left"));
    hold_connections(&soaked.harms, &lives, report);
    hold_resources(soaked, run, report);
    hold_stores(run, &lives, report).await
}

/// No request may fail at its connection, except when a gateway of its region just ended.
fn hold_connections(harms: &[Harm], lives: &[KeyLife], report: &mut Report) {
    let (mut dropped, mut late, mut excused) = (0_u64, 0_u64, 0_u64);
    for exchange in lives.iter().flat_map(|life| &life.exchanges) {
        let in_harm = harms.iter().any(|harm| {
            harm.region == exchange.via && exchange.done >= harm.from && exchange.sent <= harm.to
        });
        match &exchange.received {
            Received::Nobody | Received::Broke if in_harm => excused += 1,
            Received::Nobody | Received::Broke => dropped += 1,
            Received::Late => late += 1,
            Received::Answer(_) => {}
        }
    }
    let what = format!("{dropped} requests failed at their connection though no gateway was restarted");
    report.none("dropped", dropped, what);
    report.numbers.insert("broken_by_restarts", excused.into());
    report.numbers.insert("without_answer_in_8_s", late.into());
}

fn hold_resources(soaked: &Soaked, run: &Run<'_>, report: &mut Report) {
    let (mut memory, mut descriptors) = (json!({}), json!({}));
    for region in 0..run.deployment.regions.len() {
        let name = run.name(region);
        let Some((rss, open)) = soaked.meter.medians(region, soaked.begun, soaked.ended) else {
            let what = "did not live all the time, or was hardly seen";
            report.broke(format!("the first gateway of {name} {what}"));
            continue;
        };
        memory[&name] = json!({ "second_quarter_kib": rss.second, "last_quarter_kib": rss.last });
        let to_store = soaked.meter.most(region, |of| of.store);
        let kept = soaked.meter.most(region, |of| of.kept);
        descriptors[&name] = json!({
            "second_quarter": open.second, "last_quarter": open.last, "most_to_store": to_store, "most_kept": kept,
        });
        if rss.grew(MEMORY) {
            report.broke(format!(
                "the memory of the first gateway of {name} grew from {} to {} KiB: more than {} % and {} KiB",
                rss.second, rss.last, MEMORY.percent, MEMORY.beside
            ));
        }
        let slack = descriptors_slack(soaked.ended - soaked.begun);
        if open.grew(slack) {
            report.broke(format!(
                "the descriptors of the first gateway of {name} beside its store's grew from {} to {}: more than {} % and {}",
                open.second, open.last, slack.percent, slack.beside
            ));
        }
        if to_store > STORE {
            report.broke(format!(
                "the first gateway of {name} had {to_store} connections to its store: more than {STORE}"
            ));
        }
        let most = most_kept(soaked.ended - soaked.begun, run.settings.rate);
        if let Some(most) = most.filter(|most| kept > *most) {
            report.broke(format!(
                "the first gateway of {name} had {kept} descriptors of connections to upstreams and from peers: more than {most}"
            ));
        }
    }
    report.numbers.insert("memory", memory);
    report.numbers.insert("descriptors", descriptors);
}

/// Every answer is settled in every store, and no key is open unless its client was told so.
async fn hold_stores(run: &Run<'_>, lives: &[KeyLife], report: &mut Report) -> Result<()> {
    let in_doubt = |life: &&KeyLife| life.end == End::InDoubt;
    let is_probed = |life: &&KeyLife| CLASSES[life.class].recovery == Recovery::Probe;
    let key = |life: &'_ KeyLife| life.key.clone();
    let answered: BTreeSet<String> = lives.iter().filter(|life| life.end == End::Definite).map(key).collect();
    let (probed, parked): (Vec<&KeyLife>, Vec<_>) = lives.iter().filter(in_doubt).partition(is_probed);
    let parked: BTreeSet<String> = parked.into_iter().map(key).collect();
    let (mut lost, mut open) = (BTreeSet::new(), BTreeSet::new());
    for region in &run.deployment.regions {
        let last = Mutex::new(None);
        let arrived = async || {
            let found = region.cluster.ends(run.field.mark()).await?;
            let all = answered.is_subset(&found.settled) && found.open.is_subset(&parked);
            *lock(&last) = Some(found);
            Ok(all.then_some(()))
        };
        let waited = wait::for_some("every answer to be settled everywhere", ARRIVES_WITHIN, arrived).await;
        let found = lock(&last).take();
        let Some(found) = found else { bail!("the store of {} says nothing: {waited:?}", region.name) };
        lost.extend(answered.difference(&found.settled).cloned());
        open.extend(found.open.difference(&parked).cloned());
    }
    report.numbers.insert("settlements", answered.len().into());
    report.numbers.insert("lost_settlements", lost.len().into());
    report.numbers.insert("left_open", open.len().into());
    report.numbers.insert("parked", parked.len().into());
    if let Some(first) = lost.first() {
        let count = lost.len();
        report.broke(format!("{count} answers are not settled in some region, such as that of {first}"));
    }
    if let Some(first) = open.first() {
        let count = open.len();
        report
            .broke(format!("{count} keys are claimed or in doubt though they have an end, such as {first}"));
    }
    for life in probed {
        report.broke(format!("key {} is in doubt though its upstream can be asked", life.key));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ask::Exchange;
    use super::*;

    #[test]
    fn only_gateway_losses_excuse_a_broken_connection() {
        let begun = Instant::now();
        let at = |second: u64| begun + Duration::from_secs(second);
        let dropped = |via: usize, sent: u64, got: Received| {
            let exchange = Exchange { via, sent: at(sent), done: at(sent + 1), received: got };
            let life = KeyLife::begun("k".into(), 0, vec![exchange]);
            let harms = [Harm { region: 1, from: at(10), to: at(20) }];
            let mut report = Report::default();
            hold_connections(&harms, &[life], &mut report);
            (report.numbers["dropped"].as_u64().unwrap(), report.broken.len())
        };
        assert_eq!(dropped(1, 12, Received::Broke), (0, 0));
        assert_eq!(dropped(0, 12, Received::Broke), (1, 1), "another region");
        assert_eq!(dropped(1, 30, Received::Nobody), (1, 1), "another time");
        assert_eq!(dropped(1, 30, Received::Late), (0, 0));
    }
}

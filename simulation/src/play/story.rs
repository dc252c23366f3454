//! The story of one play, in the order of simulated time: requests, attempts, views, leases, waits
//! and faults.
//!
//! `onceway-sim replay` prints it. The same seed makes the same story, to the byte. It does not
//! judge: it repeats the outcome's breaches.

use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::authority::GateState;
use onceway::protocol::view::{self, View};
use tokio::time::Instant;

use super::agreed::{self, Chosen, Lease};
use super::clients::BODIES;
use super::log::{Log, Noted};
use crate::deployment::{Deployment, Reply};
use crate::outcome::{Breach, Outcome};
use crate::table::{Record, Truth};
use crate::upstream::{Attempted, Happening};
use crate::words::{joined, key, moment};

/// A line and its moment, since the world began.
type Line = (Duration, String);

/// All lines. Lines of one moment keep this order: faults and serving regions, views and leases,
/// stores, upstreams, clients, breaches.
pub fn tell(deployment: &Arc<Deployment>, log: &Log, begun: Instant, outcome: &Outcome) -> Vec<String> {
    let zero = deployment.world.elapsed().saturating_sub(begun.elapsed());
    let since = |at: Instant| at.saturating_duration_since(begun) + zero;
    let mut lines = breaking(log, &since);
    let truths = deployment.world.cluster.truths();
    lines.extend(chosen(&agreed::chosen(&deployment.world, &truths)));
    lines.extend(leased(&agreed::leases(&deployment.world, &truths), deployment.world.elapsed()));
    truths.iter().for_each(|store| lines.extend(of_store(store)));
    lines.extend(upstreams(deployment));
    for asked in log.all_asked() {
        let (id, at) = (key(&asked.id), &asked.at);
        let other = if asked.body == BODIES[0] { "" } else { ", another request" };
        lines.push((since(asked.begun), format!("CLIENT     {at} is sent {id}{other}")));
        let reply = describe_reply(&asked.reply);
        lines.push((since(asked.ended), format!("CLIENT     {id} has {reply} of {at}")));
    }
    let broke = |breach: &Breach| zero + Duration::from_micros(breach.broke_us);
    for breach in &outcome.breaches {
        lines.push((broke(breach), format!("BREACH     {}: {}", breach.invariant, breach.text)));
    }
    lines.sort_by_key(|(at, _)| *at);
    let line = |(at, text): Line| format!("{:>12} {text}", moment(at, zero));
    // The breaches once more at the end, which readers see first.
    let last =
        |breach: &Breach| format!("BROKE      {} at {}", breach.invariant, moment(broke(breach), zero));
    lines.into_iter().map(line).chain(outcome.breaches.iter().map(last)).collect()
}

fn chosen(all: &[Chosen]) -> Vec<Line> {
    let line = |number: usize| {
        let Chosen { at, view, by } = &all[number];
        let (by, what) = (joined(by, ", "), changes(&all[..number], view));
        (*at, format!("VIEW       {} is chosen by {by}: {what}", view.epoch()))
    };
    (0..all.len()).map(line).collect()
}

fn changes(earlier: &[Chosen], view: &View) -> String {
    let mut all = Vec::new();
    let Some(before) = earlier.last().map(|chosen| &chosen.view) else { return "the first one".to_owned() };
    for (name, member) in view.members() {
        let (is, was) = (in_view(member.standing), before.standing(name).map(in_view));
        if was != Some(is) {
            let same = |chosen: &&Chosen| chosen.view.standing(name).map(in_view) == was;
            let since = earlier.iter().rev().take_while(same).last().map_or(0, |chosen| chosen.view.epoch());
            all.push(match was {
                Some(was) => format!("{name} is {is}, was {was} since view {since}"),
                None => format!("{name} is new"),
            });
        }
        let generation = before.members().get(name).map(|before| before.generation);
        if generation.is_some_and(|before| before != member.generation) {
            all.push(format!("{name} has another store, number {}", member.generation));
        }
    }
    if before.ring().digest() != view.ring().digest() {
        all.push("another ring".to_owned());
    }
    if before.voters() != view.voters() {
        all.push(format!("{} vote from now on", joined(view.voters().keys(), ", ")));
    }
    if all.is_empty() { "everybody stands as before".to_owned() } else { all.join("; ") }
}

/// The first grant of each region's lease under each view, and its end. Renewals are left out.
fn leased(all: &[Lease], now: Duration) -> Vec<Line> {
    let mut lines = Vec::new();
    for lease in all {
        let Lease { region, epoch, from, to } = lease;
        let others = || all.iter().filter(|other| other.region == *region && *other != lease);
        let runs = others().any(|other| other.from < *from && *from <= other.to);
        let what = if runs { "is renewed under" } else { "is granted under" };
        lines.push((*from, format!("LEASE      {region}: {what} view {epoch}")));
        if *to < now && !others().any(|other| other.from <= *to && *to < other.to) {
            lines.push((*to, format!("LEASE      {region}: has run out, nobody renewed it")));
        }
    }
    lines
}

fn breaking(log: &Log, since: &impl Fn(Instant) -> Duration) -> Vec<Line> {
    let mut lines = Vec::new();
    for broken in log.all_broken() {
        let (kind, place) = (broken.kind, &broken.place);
        lines.push((since(broken.from), format!("FAULT      {kind} at {place} begins")));
        if let Some(to) = broken.to {
            lines.push((since(to), format!("FAULT      {kind} at {place} is over")));
        }
    }
    for (at, kind, text) in log.all_noted() {
        let tag = match kind {
            Noted::NotPossible => "FAULT      not possible:",
            Noted::Waits => "WAITS     ",
            Noted::Acted => "OPERATOR  ",
        };
        lines.push((since(at), format!("{tag} {text}")));
    }
    for served in log.all_served() {
        lines.push((since(served.from), format!("SERVES     {} from now on", served.region)));
        lines.push((since(served.to), format!("SERVES     {} until about now", served.region)));
    }
    lines
}

/// The story of one store: its gate, its records, and the claims that it holds for others.
fn of_store(store: &Truth) -> Vec<Line> {
    let mut lines = Vec::new();
    let gates = &store.history.gates;
    let before = [None].into_iter().chain(gates.iter().map(|gate| Some(&gate.state)));
    for (gate, before) in gates.iter().zip(before) {
        lines.push((gate.at, format!("GATE       {}: {}", store.origin, gate_line(before, &gate.state))));
    }
    for write in &store.writes {
        let id = key(&write.id);
        let text = match &write.record {
            None => format!("{id} is forgotten"),
            Some(record) => format!("{id} {}", recorded(record)),
        };
        lines.push((write.at, format!("STORE      {}: {text}", store.origin)));
    }
    for lodged in &store.history.lodged {
        let text = format!("{} {} for {}", key(&lodged.id), lodged.token, lodged.origin);
        lines.push((lodged.at, format!("ESCROW     {}: holds {text}", store.origin)));
    }
    lines
}

fn recorded(record: &Record) -> String {
    let mut text = format!("{} {}", record.standing.says(), record.token);
    if !record.over.is_empty() {
        let over = record.over.iter().map(|(origin, token)| format!("{token} of {origin}"));
        text.push_str(&format!(", over {}", joined(over, ", ")));
    }
    if !record.risk.is_empty() {
        text.push_str(&format!(", at risk of {}", joined(&record.risk, ", ")));
    }
    text
}

fn upstreams(deployment: &Deployment) -> Vec<Line> {
    let mut lines = Vec::new();
    for Attempted { at, by, id, token, .. } in deployment.world.upstreams.arrived_since(&mut 0) {
        lines.push((at, format!("UPSTREAM   {by}: {} arrives under {token}", key(&id))));
    }
    for (id, effects) in deployment.world.upstreams.ledger() {
        for (number, effect) in effects.iter().enumerate() {
            let again = if number > 0 { " AGAIN" } else { "" };
            let Happening { at, region, token, .. } = effect;
            lines.push((*at, format!("EFFECT     {region}: {} under {token}{again}", key(&id))));
        }
    }
    lines
}

fn gate_line(before: Option<&GateState>, now: &GateState) -> String {
    let mut text = String::new();
    let epoch = now.view.epoch();
    if before.is_none_or(|before| before.view.epoch() != epoch) {
        let members = now.view.members().iter();
        let members = members.map(|(name, member)| format!("{name} {}", in_view(member.standing)));
        text.push_str(&format!("goes by view {epoch} ({}), ", joined(members, ", ")));
    }
    match &now.pending {
        Some(pending) => text.push_str(&format!("gives up keys for view {}", pending.target.epoch())),
        None if now.is_open() => text.push_str("open"),
        None => text.push_str("what it gained is closed still"),
    }
    text
}

fn in_view(standing: view::Standing) -> &'static str {
    match standing {
        view::Standing::Serving => "serving",
        view::Standing::Sealed { drained: true } => "drained",
        view::Standing::Sealed { drained: false } => "sealed",
        view::Standing::Lost { .. } => "lost",
    }
}

pub(super) fn describe_reply(reply: &Reply) -> String {
    match reply {
        Reply::Answered { status, code, replayed, by, .. } => {
            let what = if code.is_empty() { String::new() } else { format!(" {code}") };
            let again = if *replayed { " again" } else { "" };
            let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
            format!("{}{what}{again}{by}", status.as_u16())
        }
        Reply::Broken => "a broken connection".to_owned(),
        Reply::TimedOut => "no answer in time".to_owned(),
    }
}

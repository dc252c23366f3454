//! The story of one play: who asked what, who ran it, who agreed on what, and what was broken, in the order of simulated time.
//!
//! Neighbours: it reads what [`super::log`] and the world kept; `onceway-sim replay` prints it. The same seed tells the same story, to the
//! byte. It must not judge, but for repeating what the outcome says.

use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::region::RegionName;
use onceway::protocol::view;
use tokio::time::Instant;

use super::log::Log;
use crate::deployment::{Deployment, Reply};
use crate::outcome::Outcome;
use crate::table::{Record, Standing, Truth};

/// A line and its moment, since the world began.
type Line = (Duration, String);

/// All lines. Lines of one moment keep this order: faults and who serves, stores, upstreams, clients.
pub fn tell(deployment: &Arc<Deployment>, log: &Log, begun: Instant, outcome: &Outcome) -> Vec<String> {
    let zero = deployment.world.elapsed().saturating_sub(begun.elapsed());
    let since = |at: Instant| at.saturating_duration_since(begun) + zero;
    let mut lines = breaking(log, &since);
    for store in deployment.world.cluster.truths() {
        lines.extend(of_store(&store));
    }
    lines.extend(upstreams(deployment));
    for asked in log.all_asked() {
        let (id, at) = (key(&asked.id), &asked.at);
        lines.push((since(asked.begun), format!("CLIENT     {at} is sent {id}")));
        lines.push((since(asked.ended), format!("CLIENT     {id} has {} of {at}", told(&asked.reply))));
    }
    lines.sort_by_key(|(at, _)| *at);
    let mut story: Vec<String> =
        lines.into_iter().map(|(at, text)| format!("{} {text}", clock(at, zero))).collect();
    story.extend(
        outcome
            .breaches
            .iter()
            .map(|breach| format!("BREACH     {} at {} ms: {}", breach.invariant, breach.at_ms, breach.text)),
    );
    story
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
    for (at, why) in log.all_not_possible() {
        lines.push((since(at), format!("FAULT      not possible: {why}")));
    }
    for (at, what) in log.all_acted() {
        lines.push((since(at), format!("OPERATOR   {what}")));
    }
    for served in log.all_served() {
        lines.push((since(served.from), format!("SERVES     {} from now on", served.region)));
        lines.push((since(served.to), format!("SERVES     {} until about now", served.region)));
    }
    lines
}

/// What one store went through: its gate, its records, and what it holds for others.
fn of_store(store: &Truth) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut before: Option<&GateState> = None;
    for gate in &store.history.gates {
        let text = gate_line(before, &gate.state);
        lines.push((gate.at, format!("GATE       {}: {text}", store.origin)));
        before = Some(&gate.state);
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
    let mut text = format!("{} {}", standing(record.standing), record.token);
    if !record.over.is_empty() {
        let over = record.over.iter().map(|(origin, token)| format!("{token} of {origin}"));
        text.push_str(&format!(", over {}", over.collect::<Vec<_>>().join(", ")));
    }
    if !record.risk.is_empty() {
        let risk: Vec<&str> = record.risk.iter().map(RegionName::as_str).collect();
        text.push_str(&format!(", at risk of {}", risk.join(", ")));
    }
    text
}

fn upstreams(deployment: &Deployment) -> Vec<Line> {
    let mut lines = Vec::new();
    for (region, arrival) in deployment.world.upstreams.all_arrivals() {
        if let Some((id, token, _)) = &arrival.attempt {
            lines.push((arrival.at, format!("UPSTREAM   {region}: {} arrives under {token}", key(id))));
        }
    }
    for (id, effects) in deployment.world.upstreams.ledger() {
        for (number, effect) in effects.iter().enumerate() {
            let again = if number > 0 { " AGAIN" } else { "" };
            let (region, token) = (&effect.region, effect.token);
            lines.push((effect.at, format!("EFFECT     {region}: {} under {token}{again}", key(&id))));
        }
    }
    lines
}

/// Seconds since clients began, with microseconds; what came before has a minus.
fn clock(at: Duration, zero: Duration) -> String {
    let (sign, span) = if at >= zero { (' ', at - zero) } else { ('-', zero - at) };
    format!("{sign}{:>4}.{:06}", span.as_secs(), span.subsec_micros())
}

fn key(id: &KeyId) -> String {
    format!("{}/{}", id.tenant(), id.key().as_str())
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Claimed => "is claimed under",
        Standing::InDoubt => "is in doubt under",
        Standing::Settled => "is settled under",
        Standing::Released => "is free again after",
        Standing::Tombstone => "is past its retention, last",
    }
}

fn gate_line(before: Option<&GateState>, now: &GateState) -> String {
    let mut text = String::new();
    let epoch = now.view.epoch();
    if before.is_none_or(|before| before.view.epoch() != epoch) {
        let members =
            now.view.members().iter().map(|(name, member)| format!("{name} {}", in_view(member.standing)));
        text.push_str(&format!("goes by view {epoch} ({}), ", members.collect::<Vec<_>>().join(", ")));
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

pub(super) fn told(reply: &Reply) -> String {
    match reply {
        Reply::Told { status, code, replayed, by, .. } => {
            let what = if code.is_empty() { String::new() } else { format!(" {code}") };
            let again = if *replayed { " again" } else { "" };
            let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
            format!("{}{what}{again}{by}", status.as_u16())
        }
        Reply::Broken => "a broken connection".to_owned(),
        Reply::TimedOut => "no answer in time".to_owned(),
    }
}

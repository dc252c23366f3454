//! A route's declared settings as files write them: read, shown and compared by their types.
//!
//! `gateway::policy::settings` declares them; `policy` reads those that have rules of their own.

use std::time::Duration;

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::reader::{self, Section};
use super::span::{show, show_size};
use crate::gateway::policy::settings::{KEYED, Kind, LONG, MOST_BYTES, Policy, Route, Setting, settings};
use crate::protocol::lifetime::Retention;

/// Reads the settings of one table of a route, or of none. What is absent or wrong stays as it is.
pub(super) fn read(section: &Section<'_>, table: Option<&str>, all: &'static [Setting], policy: &mut Policy) {
    for Setting { key, kind, .. } in all {
        let (of, key) = key.split_once('.').map_or((None, *key), |(of, key)| (Some(of), key));
        if of == table {
            read_one(section, key, kind, policy);
        }
    }
}

fn read_one(section: &Section<'_>, key: &'static str, kind: &Kind, policy: &mut Policy) {
    fn put<T>(field: &mut T, read: Option<T>) {
        read.into_iter().for_each(|value| *field = value);
    }
    match *kind {
        Kind::Flag(field) => put(field(policy), section.optional(key, reader::flag)),
        Kind::Span(least, most, _, field) => {
            put(field(policy), section.optional(key, |value| reader::time(value, least, most)));
        }
        Kind::Life(_, field) => put(field(policy), section.optional(key, life)),
        Kind::Size(least, _, field) => {
            put(field(policy), section.optional(key, |value| reader::size(value, least, MOST_BYTES)));
        }
        Kind::Number(least, most, _, set, _) => {
            let number = section.optional(key, |value| reader::number(value, least, most));
            number.into_iter().for_each(|number| set(policy, number));
        }
        Kind::Word(one) => {
            let words: Vec<(&str, usize)> = one.words().into_iter().zip(0..).collect();
            let place = section.optional(key, |value| reader::word(value, &words));
            place.into_iter().for_each(|place| one.set(policy, place));
        }
        Kind::Own(..) | Kind::OfRoute(..) => {}
    }
}

/// Reads the time for which a key is remembered.
pub(super) fn life(value: &DeValue<'_>) -> Result<Retention, String> {
    if value.as_str() == Some("never") {
        return Ok(Retention::Never);
    }
    reader::time(value, Duration::from_secs(1), LONG)
        .map(Retention::For)
        .map_err(|why| format!("{why}, or \"never\""))
}

/// The keys of settings that have a meaning only on routes that handle keys. A table is one key.
pub(super) fn keyed() -> Vec<&'static str> {
    let mut keys: Vec<&str> = KEYED.iter().filter_map(|setting| setting.key.split('.').next()).collect();
    keys.dedup();
    keys
}

/// The value of a setting as a file would write it.
pub fn shown(setting: &Setting, policy: &mut Policy) -> Value {
    match setting.kind {
        Kind::Flag(field) => json!(*field(policy)),
        Kind::Span(.., field) => json!(show(*field(policy))),
        Kind::Life(_, field) => lasting(*field(policy)),
        Kind::Size(.., field) => json!(show_size(*field(policy))),
        Kind::Number(.., get) => json!(get(policy)),
        Kind::Word(one) => json!(one.get(policy)),
        Kind::Own(_, own) => own(policy),
        Kind::OfRoute(..) => Value::Null,
    }
}

/// A life as a file writes it.
pub(super) fn lasting(life: Retention) -> Value {
    match life {
        Retention::For(span) => json!(show(span)),
        Retention::Never => json!("never"),
    }
}

/// The settings of a route that differ from their defaults: a new one stays unseen.
pub(super) fn written(route: &Route) -> Map<String, Value> {
    let mut usual = Policy::usual();
    let mut policy = Policy::clone(&route.terms);
    let value = |setting: &'static Setting| {
        let (value, default) = match setting.kind {
            Kind::OfRoute(_, own) => (own(route), Value::Null),
            _ => (shown(setting, &mut policy), shown(setting, &mut usual)),
        };
        (value != default).then(|| (setting.key.to_owned(), value))
    };
    settings().filter_map(value).collect()
}

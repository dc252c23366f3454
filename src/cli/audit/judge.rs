//! Verdict on one key, by onceway's records and the number of effects in a provider's ledger.
//!
//! The entries come from `gateway::operator::export`. Pure: no file, no gateway, no clock.

use std::ops::RangeInclusive;

use clap::Args;
use serde_json::Value;

use crate::gateway::operator::instant::{self, stamp};

/// Selection of the keys and effects to judge; all others are left out.
#[derive(Args, Clone, Debug)]
pub struct Rule {
    /// Compare only effects of this time or later: a date, RFC 3339, or seconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<i64>,
    /// Compare only effects before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<i64>,
    /// The ledger is of this route; may be repeated [default: all routes]
    #[arg(long = "route", value_name = "ROUTE")]
    pub routes: Vec<String>,
    /// Statuses of answers that stand for an effect: other answers are refusals.
    #[arg(long, value_name = "FROM-TO", default_value = "200-399", value_parser = statuses)]
    pub effects: RangeInclusive<u16>,
    /// Keys of this tenant only; `None` for all.
    #[arg(skip)]
    pub tenant: Option<String>,
}

fn time(text: &str) -> Result<i64, String> {
    instant::parse(text)
        .ok_or_else(|| "write 2026-01-31, 2026-01-31T10:00:00Z or seconds since 1970".to_owned())
}

fn statuses(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first @ 100..=999), Ok(last @ 100..=999)) if first <= last => Ok(first..=last),
        _ => Err("write 200-299".to_owned()),
    }
}

impl Rule {
    /// True if the time, in milliseconds since 1970, is one that is asked for.
    pub fn covers(&self, at: i64) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }
}

/// A key as it was exported: its records and its journal entries.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub tenant: String,
    pub key: String,
    /// State of the key by all its records together.
    pub state: String,
    /// Its entries, records first.
    pub entries: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both sides agree, or nothing can be said.
    Agrees,
    /// A settled effect that the ledger does not have.
    Missing,
    /// An effect that onceway does not know.
    Extra,
    /// More than one effect.
    Double,
    /// In doubt, and the ledger has the effect.
    Happened,
    /// In doubt, and the ledger does not have the effect.
    NotFound,
    /// Running: nothing can be said yet.
    Running,
    /// The answer is forgotten: onceway no longer knows if the effect happened.
    Forgotten,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Missing => "missing",
            Verdict::Extra => "extra",
            Verdict::Double => "double",
            Verdict::Happened => "happened",
            Verdict::NotFound => "not-found",
            Verdict::Running => "running",
            Verdict::Forgotten => "forgotten",
        }
    }
}

impl Known {
    /// Groups an export's entries, which come in the order of keys, by key. Leaves out anything
    /// that does not read as an entry.
    pub fn grouped(entries: &[Value]) -> Vec<Known> {
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let mut all: Vec<Known> = Vec::new();
        for entry in entries {
            let (tenant, key) = (text(entry, "tenant"), text(entry, "key"));
            match all.last_mut().filter(|last| last.tenant == tenant && last.key == key) {
                Some(last) => last.entries.push(entry.clone()),
                None => {
                    let state = text(entry, "key_state");
                    all.push(Known { tenant, key, state, entries: vec![entry.clone()] });
                }
            }
        }
        all
    }

    pub fn requests(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| entry["request_id"].as_str())
    }

    /// The verdict if the ledger has this number of its effects; `dated` if one of them lies in the
    /// selected time.
    pub fn verdict(&self, effects: usize, dated: bool, rule: &Rule) -> Verdict {
        match (effects, dated) {
            (2.., true) => return Verdict::Double,
            (2.., false) => return Verdict::Agrees,
            (0 | 1, _) => {}
        }
        let expected = self.is_asked_for(rule);
        match (self.state.as_str(), effects) {
            ("settled", 0) if self.has_effect(rule) && expected => Verdict::Missing,
            ("settled", 1) if !self.has_effect(rule) && dated => Verdict::Extra,
            ("released" | "absent", 1) if dated => Verdict::Extra,
            ("in-doubt", 0) if expected => Verdict::NotFound,
            ("in-doubt", 1) if expected || dated => Verdict::Happened,
            ("in-progress", _) if expected => Verdict::Running,
            ("expired", _) if expected => Verdict::Forgotten,
            (_, _) => Verdict::Agrees,
        }
    }

    /// True if the selection expects an effect of the key in the ledger.
    fn is_asked_for(&self, rule: &Rule) -> bool {
        let routes: Vec<&str> = self.records().filter_map(|entry| entry["route"].as_str()).collect();
        // The record of an act by hand has no route.
        let routed = rule.routes.is_empty()
            || routes.iter().any(|route| !route.is_empty() && rule.routes.iter().any(|asked| asked == route));
        let moments = self.records().filter_map(|entry| {
            let settled = entry["settled_ms"].as_i64();
            entry["at_ms"].as_i64().or(settled)
        });
        let mut moments = moments.peekable();
        let dated = moments.peek().is_none() || moments.any(|at| rule.covers(at));
        routed && dated && rule.tenant.as_ref().is_none_or(|tenant| *tenant == self.tenant)
    }

    /// True if an answer that stands for an effect is settled.
    fn has_effect(&self, rule: &Rule) -> bool {
        self.settled().any(|status| rule.effects.contains(&status))
    }

    fn settled(&self) -> impl Iterator<Item = u16> {
        let settled = self.records().filter(|entry| entry["state"] == "settled");
        settled.filter_map(|entry| entry["status"].as_u64().and_then(|status| u16::try_from(status).ok()))
    }

    fn records(&self) -> impl Iterator<Item = &Value> {
        self.entries.iter().filter(|entry| entry["kind"] == "record")
    }

    /// onceway's records in one line, then the journal's entries.
    pub fn describe(&self) -> String {
        let word = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let mut parts = Vec::new();
        for entry in &self.entries {
            let token = format!("{}.{}", word(&entry["epoch"]), word(&entry["attempt"]));
            let status = word(&entry["status"]);
            let state = if entry["kind"] == "record" { word(&entry["state"]) } else { word(&entry["kind"]) };
            let at = entry["at_ms"].as_i64().map(stamp);
            let by = format!("by {} {token}", word(&entry["origin"]));
            let said = [state, status, by, at.map(|at| format!("at {at}")).unwrap_or_default()];
            parts.push(said.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "));
        }
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule() -> Rule {
        Rule { effects: 200..=399, routes: Vec::new(), tenant: None, from: None, until: None }
    }

    fn record(state: &str, status: Option<u16>) -> Value {
        json!({
            "tenant": "acme", "key": "k", "key_state": state, "kind": "record", "origin": "eu#1", "epoch": 3, "attempt": 1,
            "request_id": "req_1", "state": state, "status": status, "at_ms": 1_000, "route": "charges",
        })
    }

    fn known(state: &str, status: Option<u16>) -> Known {
        Known::grouped(&[record(state, status)]).remove(0)
    }

    #[test]
    fn every_state_against_none_one_and_two_effects() {
        use Verdict::{Agrees, Double, Extra, Forgotten, Happened, Missing, NotFound, Running};
        let cases = [
            ("settled", Some(201), [Missing, Agrees, Double]),
            ("settled", Some(303), [Missing, Agrees, Double]),
            ("settled", Some(402), [Agrees, Extra, Double]),
            ("released", None, [Agrees, Extra, Double]),
            ("in-doubt", None, [NotFound, Happened, Double]),
            ("in-doubt", Some(500), [NotFound, Happened, Double]),
            ("in-progress", None, [Running, Running, Double]),
            ("expired", None, [Forgotten, Forgotten, Double]),
            ("absent", None, [Agrees, Extra, Double]),
        ];
        for (state, status, expected) in cases {
            let key = known(state, status);
            let said = [0, 1, 2].map(|effects| key.verdict(effects, true, &rule()));
            assert_eq!(said, expected, "{state} {status:?}");
        }
        assert_eq!(known("settled", Some(201)).verdict(9, true, &rule()), Double);
    }

    #[test]
    fn keys_outside_the_rule_are_not_judged() {
        let key = known("settled", Some(201));
        let others = [
            Rule { routes: vec!["payouts".to_owned()], ..rule() },
            Rule { tenant: Some("globex".to_owned()), ..rule() },
            Rule { from: Some(1_001), ..rule() },
            Rule { until: Some(1_000), ..rule() },
        ];
        for rule in others {
            assert_eq!(key.verdict(0, false, &rule), Verdict::Agrees, "{rule:?}");
        }
        for rule in
            [Rule { routes: vec!["charges".to_owned()], ..rule() }, Rule { from: Some(1_000), ..rule() }]
        {
            assert_eq!(key.verdict(0, false, &rule), Verdict::Missing, "{rule:?}");
        }
        // Rows of the ledger outside the selected time explain a record in it, and are no finding
        // themselves.
        assert_eq!(key.verdict(1, false, &rule()), Verdict::Agrees);
        assert_eq!(known("released", None).verdict(1, false, &rule()), Verdict::Agrees);
        assert_eq!(key.verdict(2, false, &rule()), Verdict::Agrees);
    }

    #[test]
    fn a_key_without_a_date_is_judged_whatever_the_time() {
        let mut entry = record("settled", Some(201));
        entry["at_ms"] = Value::Null;
        let key = Known::grouped(&[entry]).remove(0);
        assert_eq!(key.verdict(0, false, &Rule { from: Some(9_000), ..rule() }), Verdict::Missing);
    }

    #[test]
    fn one_of_several_records_is_enough() {
        let (mut settled, mut doubt) = (record("settled", Some(201)), record("in-doubt", None));
        for entry in [&mut settled, &mut doubt] {
            entry["key_state"] = "settled".into();
        }
        doubt["origin"] = "us#1".into();
        let mut late = record("released", Some(201));
        (late["kind"], late["state"]) = ("late".into(), Value::Null);
        let other = json!({ "tenant": "acme", "key": "l", "key_state": "released", "kind": "record" });
        let groups = Known::grouped(&[doubt, settled, late, other]);
        assert_eq!((groups.len(), groups[0].entries.len()), (2, 3));
        assert_eq!(groups[0].verdict(0, false, &rule()), Verdict::Missing);
        let described = groups[0].describe();
        assert!(
            described.contains("in-doubt by us#1 3.1") && described.contains("settled 201 by eu#1 3.1"),
            "{described}"
        );
        assert!(described.contains("late 201 by eu#1 3.1 at 1970-01-01T00:00:01.000Z"), "{described}");
    }

    #[test]
    fn arguments_are_read_strictly() {
        assert_eq!(statuses("200-299"), Ok(200..=299));
        assert_eq!(statuses("201"), Ok(201..=201));
        for bad in ["", "299-200", "2xx", "0-999", "200-"] {
            assert!(statuses(bad).is_err(), "{bad}");
        }
    }
}

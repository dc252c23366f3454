//! The rules and the scrape configuration of deploy/prometheus, for a Prometheus whose minutes are
//! seconds. Every time of a rule (`for`, a range in brackets, an `offset`) is divided by
//! [`FACTOR`]. Bounds stay. Of the configuration only the targets and the two intervals differ.

use crate::support::documents::{place_of, text};
use crate::support::*;
use jiff::{Span, SpanRelativeTo, Unit};
use serde_yaml_ng::Value;

const FACTOR: f64 = 60.0;
/// The time between two scrapes, and so the limit for one. Five fit into the shortest range; the
/// configuration asks for at least four. A 60th of its own interval would be too short for a busy
/// machine.
const SCRAPE: &str = "1s";
/// The time between two evaluations of the rules: the configuration's, divided.
const LOOK: &str = "250ms";
const WITNESSES: &str = "onceway-witness";
pub const WITNESS_TARGETS: &str = "witnesses.json";

pub struct Rule {
    pub labels: BTreeSet<String>,
    pub expr: String,
}

pub struct Rules {
    pub alerts: BTreeMap<String, Rule>,
    pub file: String,
}

impl Rules {
    pub fn read() -> Self {
        let mut file: Value =
            serde_yaml_ng::from_str(&text("deploy/prometheus/alerts.yml")).expect("the rules are YAML");
        let mut alerts = BTreeMap::new();
        for group in file["groups"].as_sequence_mut().expect("groups") {
            for rule in group["rules"].as_sequence_mut().expect("rules") {
                let expr = sooner(rule["expr"].as_str().expect("an expression"));
                rule["expr"] = expr.clone().into();
                if let Some(span) = rule.get_mut("for") {
                    *span = divided(span.as_str().expect("a span")).into();
                }
                let annotations = rule["annotations"].as_mapping().expect("annotations").values();
                let named =
                    annotations.flat_map(|text| text.as_str().unwrap_or_default().split("$labels.").skip(1));
                let is_label = |at: &char| at.is_ascii_alphanumeric() || *at == '_';
                let labels = named.map(|rest| rest.chars().take_while(is_label).collect()).collect();
                let name = rule["alert"].as_str().expect("a name").to_owned();
                alerts.insert(name, Rule { labels, expr });
            }
        }
        let file = serde_yaml_ng::to_string(&file).expect("YAML");
        Self { alerts, file }
    }

    /// Fails unless this alert has everything that its rule promises an operator.
    pub fn check(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) {
        for label in &self.alerts[name].labels {
            let value = labels.get(label).map_or("", String::as_str);
            assert!(!value.is_empty(), "{name} has no {label}, which its annotations name: {labels:?}");
            let shown = annotations.values().any(|text| text.contains(value));
            assert!(shown, "{name}: {label} = {value} is not shown: {annotations:?}");
        }
        for wanted in ["summary", "description", "runbook_url"] {
            let text = annotations.get(wanted).map_or("", String::as_str);
            let broken = ["{{", "}}", "<no value>", "<error", "NaN", "%!"];
            let whole = !text.is_empty() && broken.iter().all(|broken| !text.contains(broken));
            assert!(whole, "{name}: {wanted} is {text:?}");
        }
        place_of(name, &annotations["runbook_url"]);
        assert!(labels.contains_key("severity"), "{name}: {labels:?}");
    }
}

/// The scrape configuration with these targets, by region, in place of the example's.
pub fn configuration(targets: &BTreeMap<String, Vec<String>>) -> String {
    let mut file: Value = serde_yaml_ng::from_str(&text("deploy/prometheus/prometheus.yml"))
        .expect("the configuration is YAML");
    for (span, short) in [("scrape_interval", SCRAPE), ("evaluation_interval", LOOK)] {
        assert!(file["global"][span].is_string(), "no {span}");
        file["global"][span] = short.into();
    }
    let mut left: BTreeSet<&String> = targets.keys().collect();
    let jobs = file["scrape_configs"].as_sequence_mut().expect("jobs");
    for job in jobs {
        if job["job_name"] == WITNESSES {
            job.as_mapping_mut().expect("a job").remove("static_configs");
            let file: BTreeMap<&str, Vec<&str>> = BTreeMap::from([("files", vec![WITNESS_TARGETS])]);
            job["file_sd_configs"] = serde_yaml_ng::to_value(vec![file]).expect("YAML");
            continue;
        }
        for group in job["static_configs"].as_sequence_mut().expect("targets") {
            let region = group["labels"]["region"].as_str().expect("targets have a region").to_owned();
            let own = targets.get(&region).unwrap_or_else(|| panic!("{region} is not in the fleet"));
            group["targets"] = own.iter().map(String::as_str).collect::<Vec<_>>().into();
            left.remove(&region);
        }
    }
    assert!(left.is_empty(), "the example leaves out {left:?}");
    serde_yaml_ng::to_string(&file).expect("YAML")
}

fn divided(span: &str) -> String {
    let whole: Span = span.parse().unwrap_or_else(|error| panic!("{span}: {error}"));
    let whole = whole.total((Unit::Millisecond, SpanRelativeTo::days_are_24_hours())).unwrap();
    let short = whole / FACTOR;
    assert!(short > 0.0 && short.fract() == 0.0, "{span} cannot be divided by {FACTOR}");
    format!("{short}ms")
}

fn sooner(expr: &str) -> String {
    let mut after = String::new();
    for (number, part) in expr.split('[').enumerate() {
        let (range, rest) =
            if number == 0 { ("", part) } else { part.split_once(']').expect("a range ends") };
        if number > 0 {
            let spans: Vec<String> = range.split(':').map(divided).collect();
            after += &format!("[{}]", spans.join(":"));
        }
        for (number, piece) in rest.split("offset ").enumerate() {
            let end = piece.find(|at: char| !at.is_ascii_alphanumeric()).unwrap_or(piece.len());
            match number {
                0 => after += piece,
                _ => after += &format!("offset {}{}", divided(&piece[..end]), &piece[end..]),
            }
        }
    }
    after
}

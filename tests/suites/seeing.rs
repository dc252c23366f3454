//! The tools of operators are right: alert rules, the dashboard, the list of metrics, and all names
//! in them, compared with the code. `watched.rs` looks at real gateways, `tests/long/alerts.rs` at
//! a real Prometheus.

use crate::support::documents::{anchors, broken_links, pages, place_of, queries, text, top};
use crate::support::promtool::{self, promtool};
use crate::support::*;
use onceway::ports::observe::{self, Kind, Metric};

/// The conditions that need an alert, and the alerts for them.
const ASKED_FOR: [(&str, &str); 15] = [
    ("availability", "OncewayAvailabilityBurns"),
    ("overhead", "OncewayOverheadBurns"),
    ("mismatch rate", "OncewayKeysReused"),
    ("in-progress rate", "OncewayInProgress"),
    ("store p99", "OncewayStoreSlow"),
    ("lag", "OncewayReplicationLag"),
    ("window running", "OncewayWindowRunning"),
    ("in doubt growing", "OncewayDoubtsGrow"),
    ("lost claims", "OncewayClaimsLost"),
    ("double runs", "OncewayDoubleRuns"),
    ("doubles that nothing explains", "OncewayUnexplainedDoubles"),
    ("the age of the audit", "OncewayAuditBehind"),
    ("slot WAL growth", "OncewaySlotGrows"),
    ("certificate expiry", "OncewayCertificateExpires"),
    ("shared settings that differ", "OncewaySettingsDiffer"),
];
/// Names that begin like a metric and are roles of the database.
const ROLES: [&str; 2] = ["onceway_gateway", "onceway_replication"];

fn rules() -> PathBuf {
    top().join("deploy/prometheus")
}

fn alerts() -> BTreeMap<String, String> {
    let text = text("deploy/prometheus/alerts.yml");
    let one = |part: &str| {
        let (name, rest) = part.split_once('\n').expect("an alert has more than a name");
        (name.trim().to_owned(), rest.to_owned())
    };
    text.split("- alert: ").skip(1).map(one).collect()
}

fn value<'a>(lines: &'a str, key: &str) -> Option<&'a str> {
    let line = lines.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "))?;
    Some(line.trim_matches('"'))
}

/// All metric names in a text; for a histogram's series, the histogram's name.
fn names(text: &str) -> BTreeSet<String> {
    let word = |at: char| at.is_ascii_alphanumeric() || at == '_';
    let all = text.split(|at| !word(at)).filter(|name| name.starts_with("onceway_"));
    let base = |name: &str| {
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let known =
            histogram.filter(|base| metric(base).is_some_and(|metric| metric.kind == Kind::Histogram));
        known.unwrap_or(name).to_owned()
    };
    all.map(base).collect()
}

fn metric(name: &str) -> Option<&'static Metric> {
    observe::ALL.iter().find(|metric| metric.name == name)
}

/// The names of the witness's metrics, which has a page of its own.
fn of_the_witness() -> BTreeSet<String> {
    names(&text("src/server/witness.rs"))
}

fn known() -> BTreeSet<String> {
    observe::ALL.iter().map(|metric| metric.name.to_owned()).chain(of_the_witness()).collect()
}

/// Matchers in queries, as metric, label and value, that the metric's help does not know.
fn strange_matchers(text: &str) -> Vec<String> {
    let mut strange = Vec::new();
    for (at, _) in text.match_indices("onceway_") {
        let rest = &text[at..];
        let end = rest.find(|at: char| !at.is_ascii_alphanumeric() && at != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let Some(matchers) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else { continue };
        let help = names(name).first().and_then(|name| metric(name)).map_or("", |metric| metric.help);
        for matcher in matchers.0.split(',') {
            let (label, wanted) = matcher.split_once('=').unwrap_or((matcher, ""));
            let wanted = wanted.trim_matches(['"', '\\', '~']);
            let target = ["region", "instance", "job"].contains(&label);
            let known = match label {
                "le" => wanted.parse().is_ok_and(|bound: f64| observe::BUCKETS.contains(&bound)),
                _word => help.contains(label) && wanted.split('|').all(|wanted| help.contains(wanted)),
            };
            if !target && !known {
                strange.push(format!("{name}{{{matcher}}}"));
            }
        }
    }
    strange
}

#[test]
fn the_alert_rules_are_valid() {
    for words in [["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"]] {
        promtool(&rules(), &words).unwrap_or_else(|said| panic!("promtool {}:\n{said}", words.join(" ")));
    }
}

#[test]
fn every_alert_has_a_firing_and_a_quiet_case() {
    let tests = text("deploy/prometheus/alerts_test.yml");
    let is_quiet = |rest: &str| rest.trim_start().starts_with("exp_alerts: []");
    let cases = tests.split("alertname: ").skip(1).filter_map(|part| part.split_once('\n'));
    let cases: Vec<_> = cases.map(|(name, rest)| (name.trim(), is_quiet(rest))).collect();
    for name in alerts().keys() {
        for quiet in [true, false] {
            assert!(cases.contains(&(name.as_str(), quiet)), "{name} has no case with quiet = {quiet}");
        }
    }
}

#[test]
fn every_required_alert_exists_and_gives_advice() {
    let alerts = alerts();
    for (what, name) in ASKED_FOR {
        assert!(alerts.contains_key(name), "nothing tells of {what}: {name} is missing");
    }
    for (name, lines) in &alerts {
        let severity = value(lines, "labels").unwrap_or_default();
        let known = ["{ severity: critical }", "{ severity: warning }"];
        assert!(known.contains(&severity), "{name}: {severity}");
        assert!(value(lines, "summary").is_some_and(|summary| summary.len() > 10), "{name} has no summary");
        let url = value(lines, "runbook_url").unwrap_or_else(|| panic!("{name} has no runbook_url"));
        place_of(name, url);
        // `deploy_files` runs every command that a file of deploy/ names.
        let description = value(lines, "description").unwrap_or_default();
        assert!(description.contains("`onceway "), "{name}: it names no command:\n{description}");
    }
}

#[test]
fn the_dashboard_shows_every_metric_in_valid_queries() {
    let queries = queries();
    let all: String = queries.iter().map(|(_, query)| format!("{query}\n")).collect();
    assert_eq!(names(&all), known(), "the dashboard shows other metrics than there are");
    assert_eq!(strange_matchers(&all), Vec::<String>::new());
    // As recording rules, which promtool reads as Prometheus would.
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, (_, query)) in queries.iter().enumerate() {
        let query = query.replace("$__rate_interval", "1m").replace("$region", ".*").replace('\'', "''");
        rules += &format!("      - record: query_{number}\n        expr: '{query}'\n");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("queries.yml"), &rules).unwrap();
    let check = || promtool(folder.path(), &["check", "rules", "queries.yml"]);
    check().unwrap_or_else(|said| panic!("{rules}\n{said}"));
    fs::write(folder.path().join("queries.yml"), rules.replace("sum by (verdict) (", "sum by (verdict) (("))
        .unwrap();
    assert!(!promtool::is_there() || check().is_err(), "nothing would be noticed");
}

#[test]
fn every_metric_that_a_document_or_rule_names_exists() {
    let mut known = known();
    known.extend(ROLES.map(str::to_owned));
    let mut files = pages();
    for folder in ["deploy/prometheus", "config"] {
        let entries = fs::read_dir(top().join(folder)).unwrap().flatten();
        let paths = entries.map(|entry| format!("{folder}/{}", entry.file_name().display()));
        files.extend(paths.filter(|path| path.ends_with(".yml") || path.ends_with(".toml")));
    }
    for file in files {
        // Names of a file's own variables or databases are no metrics. Those of Kubernetes and
        // Postgres are in folders of their own.
        let unknown: Vec<String> =
            names(&text(&file)).difference(&known).filter(|name| !name.ends_with('_')).cloned().collect();
        assert_eq!(unknown, Vec::<String>::new(), "{file} names metrics that nobody exports");
    }
    assert_eq!(strange_matchers(&text("deploy/prometheus/alerts.yml")), Vec::<String>::new());
}

#[test]
fn every_link_in_a_document_leads_somewhere() {
    for page in pages() {
        assert_eq!(broken_links(&page, &text(&page)), Vec::<String>::new(), "{page} links to nothing");
    }
}

#[test]
fn every_metric_is_documented_in_the_codes_words() {
    let path = "deploy/METRICS.md";
    let kind = |metric: &Metric| match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let row = |metric: &Metric| format!("| `{}` | {} | {} |\n", metric.name, kind(metric), metric.help);
    let table: String = observe::ALL.iter().map(row).collect();
    let before = text(path);
    let (head, rest) = before.split_once("|---|---|---|\n").expect("a table");
    let tail = rest.find("\n## ").map_or("", |at| &rest[at..]);
    let after = format!("{head}|---|---|---|\n{table}{tail}");
    if std::env::var_os("ONCEWAY_RECORD").is_some() {
        fs::write(top().join(path), &after).unwrap();
    }
    assert!(
        text(path) == after,
        "{path} is not what the code says: ONCEWAY_RECORD=1 cargo test --test suites seeing:: writes it anew"
    );
    let own = of_the_witness();
    assert!(own.len() >= 5 && own.is_subset(&names(&after)), "the witness' metrics are missing");
}

#[test]
fn the_readers_of_this_suite_notice_faults() {
    let query = "rate(onceway_store_seconds_bucket[5m]) + onceway_nothing_bucket{a=\"onceway\"}";
    assert!(names(query).iter().eq(["onceway_nothing_bucket", "onceway_store_seconds"]));
    let right = r#"onceway_answers_total{region=~"$region",verdict="key_reused"}"#;
    assert_eq!(strange_matchers(right), Vec::<String>::new());
    let right = right.replace("=\"key_reused\"", "=~\"key_reused|settled\"");
    assert_eq!(strange_matchers(&right), Vec::<String>::new());
    for (from, to) in
        [("key_reused", "key_used"), ("settled", "setled"), ("verdict=", "verdicts="), ("answers", "answer")]
    {
        assert_eq!(strange_matchers(&right.replace(from, to)).len(), 1, "{to}");
    }
    let bucket = |bound: &str| format!("onceway_overhead_seconds_bucket{{le=\"{bound}\"}}");
    assert_eq!(strange_matchers(&bucket("0.25")), Vec::<String>::new());
    assert_eq!(strange_matchers(&bucket("0.3")).len(), 1, "no bucket ends there");
    let headings = "# Runbook\n## A region dies\n### Disk filling from a dead subscriber\ntext # no heading\n## What's `next`, then?";
    let expected = ["a-region-dies", "disk-filling-from-a-dead-subscriber", "runbook", "whats-next-then"];
    assert_eq!(anchors(headings).into_iter().collect::<Vec<_>>(), expected);
    let linked = "[a](../escrow.md#escrow) [b](#there) [c](../none.md) [d](../escrow.md#none) [e](http://x)";
    let broken = broken_links("docs/operate/deploy.md", linked);
    assert_eq!(broken, ["#there", "../none.md", "../escrow.md#none"]);
}

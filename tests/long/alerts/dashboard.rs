//! The dashboard's queries, asked of a Prometheus that has scraped working gateways: each has a
//! result, or is listed with a reason.

use crate::alerts::prometheus::Prometheus;
use crate::support::documents::queries;

/// Metrics that have nothing to show in a healthy deployment, and why.
const LATER: [(&str, &str); 10] = [
    (
        "onceway_quota_exceeded_total",
        "its series are tenants that went over their quota; nobody has one here",
    ),
    ("onceway_live_keys", "keys are counted where they are bounded; nobody bounds them here"),
    ("onceway_connections_cut_total", "only what is above 0 is shown, and no client misbehaves here"),
    ("onceway_shadow_total", "only a gateway in shadow mode counts it"),
    ("onceway_shadow_diverged_total", "only a gateway in shadow mode counts it"),
    ("onceway_store_errors_total", "only what is above 0 is shown, and the store is well"),
    ("onceway_store_spared_total", "only what is above 0 is shown, and the store answers"),
    ("onceway_store_breaker_open", "only what is above 0 is shown, and the store answers"),
    ("onceway_witness_", "three regions need no witness"),
    ("onceway_claims_failed_total", "its series begin with the first claim that the store does not take"),
];

fn filled(query: &str) -> String {
    query.replace("$__rate_interval", "1m").replace("$region", ".*")
}

/// The labels that group the answer, and that legends name.
fn by(query: &str) -> Vec<String> {
    let of = |part: &str| part.split_once(')').map(|(labels, _)| labels.to_owned()).unwrap_or_default();
    let labels = query.split("by (").skip(1).map(of).collect::<Vec<_>>().join(",");
    labels
        .split(',')
        .map(|label| label.trim().to_owned())
        .filter(|label| !label.is_empty() && label != "le")
        .collect()
}

/// Fails unless every query has a result or is listed, and every series has its grouping labels.
pub async fn shows(prometheus: &Prometheus) {
    let mut empty = Vec::new();
    for (title, query) in queries() {
        let found = prometheus.query(&filled(&query)).await;
        for label in by(&query) {
            let without = found.iter().find(|sample| sample.labels.get(&label).is_none_or(String::is_empty));
            assert!(without.is_none(), "{title}: a series of {query} has no {label}: {without:?}");
        }
        let listed = LATER.iter().any(|(metric, _)| query.contains(metric));
        // A result of zero divided by zero shows nothing.
        if found.iter().all(|sample| sample.value.is_nan()) && !listed {
            empty.push(format!("{title}: {query}"));
        }
    }
    assert!(empty.is_empty(), "nothing to show, and not listed:\n{}", empty.join("\n"));
}

#[test]
fn empty_dashboard_queries_are_listed_with_reasons() {
    for (metric, why) in LATER {
        assert!(!why.is_empty() && queries().iter().any(|(_, query)| query.contains(metric)), "{metric}");
    }
    assert_eq!(by("sum by (a, le) (x) / sum by (b) (y)"), ["a", "b"]);
}

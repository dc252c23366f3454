//! The gateways' reports at one moment: their status, and the metrics for the rates.
//!
//! A gateway that fails is told, and fails nothing here: people look for such a gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::super::http::Target;
use super::super::table::printable;
use crate::ports::observe;

/// Time limit of one gateway; a slower one counts as silent in this frame.
const WITHIN: Duration = Duration::from_secs(3);

pub struct Sample {
    pub at: Instant,
    /// Each gateway that was asked, in the order of the arguments.
    pub gateways: Vec<Heard>,
}

pub struct Heard {
    pub admin: String,
    /// Its report, or the reason why it has none.
    pub said: Result<GatewayState, String>,
}

pub struct GatewayState {
    pub status: Value,
    /// Keyed requests that it answered since its start, by verdict.
    pub answers: BTreeMap<String, f64>,
    pub doubts: Option<f64>,
}

impl Sample {
    pub async fn take(targets: &[Target]) -> Self {
        let ask = |target: Target| async move {
            let heard = tokio::time::timeout(WITHIN, ask(&target)).await;
            heard.unwrap_or_else(|_late| Err("it does not answer in time".to_owned()))
        };
        let asked: Vec<_> = targets.iter().map(|target| tokio::spawn(ask(target.clone()))).collect();
        let mut gateways = Vec::new();
        for (target, asked) in targets.iter().zip(asked) {
            let said = asked.await.unwrap_or_else(|error| Err(error.to_string()));
            gateways.push(Heard { admin: target.base.clone(), said });
        }
        Self { at: Instant::now(), gateways }
    }
}

async fn ask(target: &Target) -> Result<GatewayState, String> {
    let why = |error: anyhow::Error| printable(&format!("{error:#}"));
    let status = target.fetch("/v1/status").await.map_err(why)?;
    let status = serde_json::from_slice(&status).map_err(|_| "it answered no JSON".to_owned())?;
    let page = target.fetch("/metrics").await.map_err(why)?;
    let page = String::from_utf8_lossy(&page);
    let doubts = series(&page, observe::DOUBTS).map(|(_, value)| value).reduce(|a, b| a + b);
    Ok(GatewayState { status, answers: by(&page, observe::ANSWERS, "verdict"), doubts })
}

/// The sums of a metric's series by one of its labels.
fn by(page: &str, metric: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (labels, value) in series(page, metric) {
        let at = format!("{label}=\"");
        let found = labels.split_once(&at).and_then(|(_, rest)| rest.split_once('"'));
        let name = found.map(|(name, _)| printable(name)).unwrap_or_default();
        *sums.entry(name).or_default() += value;
    }
    sums
}

/// The series of one metric in Prometheus' text: labels verbatim, and the value.
fn series<'a>(page: &'a str, metric: &str) -> impl Iterator<Item = (&'a str, f64)> {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix(metric)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.split_whitespace().next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::{by, series};

    #[test]
    fn metrics_are_added_up_by_label() {
        let page = "# TYPE x counter\nx{a=\"1\",verdict=\"settled\"} 3\nx{a=\"2\",verdict=\"settled\"} 4\n\
                    x{a=\"}\",verdict=\"replayed\"} 1\nx_more{verdict=\"settled\"} 9\ny 2.5\n";
        let sums = by(page, "x", "verdict");
        assert_eq!(
            sums.into_iter().collect::<Vec<_>>(),
            [("replayed".to_owned(), 1.0), ("settled".to_owned(), 7.0)]
        );
        assert_eq!(series(page, "y").collect::<Vec<_>>(), [("", 2.5)]);
    }
}

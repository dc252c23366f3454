//! A real Prometheus: Debian's server on a free port of this machine, with files and data of its
//! own, queried over HTTP. A shell ends it as soon as this process is gone, however that ends.

use crate::alerts::rules::{Rules, WITNESS_TARGETS, configuration};
use crate::support::documents::queries;
use crate::support::*;
use onceway_lab::process;
use std::process::Child;

/// Ends the server when the pipe ends, which happens when its holder ends.
const GUARD: &str = "\"$@\" & read -r _; kill -9 $! && wait";

pub struct Prometheus {
    url: String,
    dir: PathBuf,
    guard: Child,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Alert {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub state: String,
}

impl Alert {
    pub fn name(&self) -> &str {
        &self.labels["alertname"]
    }

    pub fn fires(&self) -> bool {
        self.state == "firing"
    }

    pub fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(*name).is_some_and(|found| found == value))
    }
}

#[derive(Clone, Debug)]
pub struct Sample {
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Prometheus {
    /// Starts it in a folder of its own, and waits until it has scraped all of these targets.
    pub async fn start(
        program: &Path,
        dir: &Path,
        rules: &Rules,
        targets: &BTreeMap<String, Vec<String>>,
    ) -> Self {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("alerts.yml"), &rules.file).unwrap();
        fs::write(dir.join("prometheus.yml"), configuration(targets)).unwrap();
        fs::write(dir.join(WITNESS_TARGETS), "[]").unwrap();
        let log = dir.join("prometheus.log");
        let address = format!("127.0.0.1:{}", ports::free_run(1).expect("a free port"));
        let out = fs::File::create(&log).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).arg(program).current_dir(dir);
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"]);
        command.arg(format!("--web.listen-address={address}"));
        command.stdin(Stdio::piped()).stdout(out.try_clone().unwrap()).stderr(out);
        let guard = command.spawn().expect("a shell");
        let prometheus = Self { url: format!("http://{address}"), dir: dir.to_owned(), guard };
        let all: usize = targets.values().map(Vec::len).sum();
        let up = async || {
            let Ok(up) = prometheus.asked("/api/v1/query", &[("query", "up == 1")]).await else {
                return Ok(None);
            };
            Ok((samples(&up).len() == all).then_some(()))
        };
        if let Err(error) = wait::for_some("Prometheus to see every gateway", BOUND, up).await {
            panic!("{error}: {}", process::tail(&log));
        }
        prometheus
    }

    /// Lets it scrape the witness of this name at this address from now on, or none.
    pub fn look_at_witness(&self, witness: Option<(&str, &str)>) {
        let targets =
            witness.map(|(name, address)| json!({ "targets": [address], "labels": { "region": name } }));
        let targets = Value::from_iter(targets);
        files::replace(&self.dir, WITNESS_TARGETS, &targets.to_string()).unwrap();
    }

    pub async fn alerts(&self) -> Vec<Alert> {
        let page = self.asked("/api/v1/alerts", &[]).await.expect("Prometheus answers");
        serde_json::from_value(page["alerts"].clone()).expect("alerts")
    }

    pub async fn query(&self, query: &str) -> Vec<Sample> {
        let page = self.asked("/api/v1/query", &[("query", query)]).await;
        samples(&page.unwrap_or_else(|error| panic!("{query}: {error}")))
    }

    async fn asked(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let answer = Ask::get(format!("{}{path}?{query}", self.url)).send(PATIENCE).await?;
        anyhow::ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        Ok(answer.json()["data"].clone())
    }
}

fn samples(page: &Value) -> Vec<Sample> {
    let one = |sample: &Value| Sample {
        labels: serde_json::from_value(sample["metric"].clone()).expect("labels"),
        value: sample["value"][1].as_str().and_then(|value| value.parse().ok()).expect("a number"),
    };
    page["result"].as_array().expect("series").iter().map(one).collect()
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It was started, so the wait succeeds; otherwise there is nobody to report to.
        let _ended = self.guard.wait();
    }
}

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
pub async fn shows_the_dashboard(prometheus: &Prometheus) {
    let mut empty = Vec::new();
    for (title, query) in queries() {
        // All regions, and a span that holds several scrapes.
        let asked = query.replace("$__rate_interval", "1m").replace("$region", ".*");
        let found = prometheus.query(&asked).await;
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

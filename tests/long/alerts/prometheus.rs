//! A real Prometheus: Debian's server on a free port of this machine, with files and data of its
//! own, queried over HTTP. A shell ends it as soon as this process is gone, however that ends.

use crate::alerts::rules::{Rules, WITNESS_TARGETS, configuration};
use crate::support::*;
use onceway_lab::process;
use serde::Deserialize;
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

//! The stage of the drill: three regions under a light load, a Prometheus that looks at them, and a
//! record of the alerts seen. us-east has two gateways, eu-west checks its upstream.

use crate::alerts::prometheus::{Alert, Prometheus};
use crate::alerts::rules::Rules;
use crate::support::*;
use tokio::task::JoinHandle;

/// The time limit for an alert to fire: an hour and a quarter of the rules, and the cause's own.
const SHOWS_WITHIN: Duration = Duration::from_secs(180);
/// The time between two looks at Prometheus, which evaluates four times a second.
const LOOK: Duration = Duration::from_millis(200);
const BETWEEN: Duration = Duration::from_millis(400);

/// Short holds, so that open keys are in doubt soon. Two runs make a dead letter, except of notes.
fn routes() -> String {
    let short = "key = \"required\"\nwait = \"200ms\"\nupstream_timeout = \"3s\"\n";
    let probes = "hold = \"10s\"\nrecovery = \"probe\"\nprobe = \"/onceway/effects\"\nescrow = \"claim\"";
    let parks = "hold = \"8s\"\nrecovery = \"park\"\n";
    let accepts = |runs: &str| {
        let kept = "mode = \"accept\"\n[route.accept]\nkeep_headers = [\"Demo-Behave\"]\n";
        format!("{short}{parks}{kept}{runs}")
    };
    [
        route("charges", &format!("{short}{probes}")),
        route("payouts", &format!("{short}{parks}")),
        route("emails", &accepts("max_runs = 2\nbackoff = \"100ms\"\nbackoff_most = \"200ms\"")),
        route("notes", &accepts("max_runs = 1000\nbackoff = \"1s\"\nbackoff_most = \"1s\"")),
        route("search", "key = \"off\""),
    ]
    .concat()
}

/// As long as by default: a machine that is busy must not look like a dead region.
const FAILOVER: &str = "\n[failover]\nlease = \"10s\"\nfloor = \"0s\"\nstable_for = \"100ms\"\n";

const HEALTH: &str = r#"
[upstream.health]
path = "/healthz"
every = "200ms"
sick_after = "2400ms"
cool_down = "1s"
"#;

pub struct Stage {
    pub fleet: Deployment,
    pub prometheus: Prometheus,
    pub rules: Rules,
    /// Correctly answered requests of the load.
    pub answered: Arc<AtomicUsize>,
    pub seen: Mutex<BTreeSet<String>>,
    load: JoinHandle<()>,
}

impl Stage {
    pub async fn set_up(server: &Path) -> Self {
        let options =
            Options { gateways: vec![2], ..options(Duration::from_millis(5), Some(routes()), FAILOVER) };
        let fleet = Deployment::start(&options, &|_| {}).await.expect("three regions start");
        let eu = &fleet.regions[1];
        let file = fleet.dir().join("eu-west.toml");
        fs::write(&file, fs::read_to_string(&file).unwrap() + HEALTH).unwrap();
        restart(eu).await;
        all_serve(&fleet).await;
        let rules = Rules::read();
        let own = |region: &Region| {
            let admins = region.gateways.iter().map(|gateway| instance(&gateway.admin())).collect();
            (region.name.to_string(), admins)
        };
        let targets: BTreeMap<String, Vec<String>> = fleet.regions.iter().map(own).collect();
        let prometheus = Prometheus::start(server, &fleet.dir().join("prometheus"), &rules, &targets).await;
        let answered = Arc::new(AtomicUsize::new(0));
        let publics = fleet.regions.iter().map(Region::public).collect();
        let load = tokio::spawn(load(publics, answered.clone()));
        Self { fleet, prometheus, rules, answered, seen: Mutex::default(), load }
    }

    /// Waits until an alert of this name and these labels fires, and checks it against its rule.
    pub async fn fires(&self, name: &str, labels: &[(&str, &str)]) -> Alert {
        let began = Instant::now();
        let alert = loop {
            let all = self.of(name).await;
            if let Some(found) = all.iter().find(|alert| alert.fires() && alert.has(labels)) {
                break found.clone();
            }
            if began.elapsed() > SHOWS_WITHIN {
                let now = self.prometheus.query(&self.rules.alerts[name].expr).await;
                panic!("{name} {labels:?} did not fire. Its alerts: {all:?}, its expression: {now:?}");
            }
            wait::pause(LOOK).await;
        };
        self.rules.check(name, &alert.labels, &alert.annotations);
        let answer = &alert.annotations;
        let took = began.elapsed().as_secs_f64();
        eprintln!("  {name} after {took:.1} s: {}\n    {}", answer["summary"], answer["description"]);
        self.seen.lock().unwrap().insert(name.to_owned());
        alert
    }

    async fn of(&self, name: &str) -> Vec<Alert> {
        let all = self.prometheus.alerts().await.into_iter();
        all.filter(|alert| alert.name() == name).collect()
    }

    pub async fn quiet(&self, name: &str, labels: &[(&str, &str)]) {
        let began = Instant::now();
        while self.of(name).await.iter().any(|alert| alert.fires() && alert.has(labels)) {
            assert!(began.elapsed() < SHOWS_WITHIN, "{name} goes on to fire");
            wait::pause(LOOK).await;
        }
    }

    pub async fn all_quiet(&self, names: &[&str], labels: &[(&str, &str)]) {
        for name in names {
            self.quiet(name, labels).await;
        }
    }

    /// The alerts that fired at any time within the last `span`.
    pub async fn fired(&self, span: Duration) -> Vec<String> {
        let span = span.as_millis();
        let query = format!(
            "count by (alertname, region) (count_over_time(ALERTS{{alertstate=\"firing\"}}[{span}ms]))"
        );
        let fired = self.prometheus.query(&query).await;
        fired.into_iter().map(|sample| format!("{:?}", sample.labels)).collect()
    }

    /// A fresh key whose home is this region, and whose next region is that one, if given.
    pub async fn key_of(&self, home: usize, next: Option<usize>) -> String {
        let name = |number: usize| self.fleet.regions[number].name.to_string();
        loop {
            let key = key("alert");
            let order = key_status(&self.fleet.regions[home], &key).await["order"].clone();
            if order[0] == name(home) && next.is_none_or(|next| order[1] == name(next)) {
                return key;
            }
        }
    }

    /// Asks until the answer has one of these statuses: a busy region may be away for a moment.
    pub async fn expect_status(&self, request: Ask, statuses: &[u16]) {
        let last = Mutex::new(String::new());
        let answer = async || {
            let answer = request.send(PATIENCE).await?;
            *last.lock().unwrap() = format!("{} {}", answer.status, answer.text());
            Ok(statuses.contains(&answer.status.as_u16()).then_some(()))
        };
        let answer = wait::for_some(&format!("{statuses:?}"), SHOWS_WITHIN, answer).await;
        answer.unwrap_or_else(|error| panic!("{error}: {}", last.lock().unwrap()));
    }

    /// Runs a command until it succeeds: a busy region may hold no lease for a moment.
    pub async fn operate(&self, at: usize, words: &[&str]) {
        let last = Mutex::new(None);
        let done = async || {
            let answer = self.fleet.regions[at].operate(words).await?;
            let is_done = answer.status.success();
            *last.lock().unwrap() = Some(answer);
            Ok(is_done.then_some(()))
        };
        let done = wait::for_some(&words.join(" "), SHOWS_WITHIN, done).await;
        done.unwrap_or_else(|error| panic!("{error}: {:?}", last.lock().unwrap()));
    }

    pub async fn tear_down(self) {
        self.load.abort();
        drop(self.prometheus);
        self.fleet.shut_down().await.unwrap();
    }
}

pub fn instance(url: &str) -> String {
    url.trim_start_matches("http://").to_owned()
}

/// Sends fresh charges while it is polled; some are repeated, or come without a key.
async fn load(publics: Vec<String>, answered: Arc<AtomicUsize>) {
    let connections = Arc::new(Connections::default());
    let mut due = tokio::time::Instant::now();
    let mut tasks = JoinSet::new();
    for round in 0_usize.. {
        wait::pause_until(due).await;
        due += BETWEEN;
        for public in publics.clone() {
            let (connections, answered) = (connections.clone(), answered.clone());
            let key = key("load");
            let mut requests = vec![post(&public, "/v1/charges", &key, BODY)];
            match round % 4 {
                0 => requests.push(requests[0].clone()),
                1 => requests.push(Ask::post(format!("{public}/v1/search"), BODY)),
                2 => requests.push(post(&public, "/v1/emails", &format!("mail-{key}"), BODY)),
                _ => {}
            }
            tasks.spawn(async move {
                for request in requests {
                    // While something is broken on purpose, this request may fail.
                    let answer = connections.send(request, PATIENCE).await;
                    if answer.is_ok_and(|answer| answer.status.is_success()) {
                        answered.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        while tasks.try_join_next().is_some() {}
    }
}

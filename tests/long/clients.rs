//! Clients that people already use, through real gateways: a lost answer, a running key, a killed
//! region, and each kind of refusal. The results are compared with the table of `docs/clients.md`.
//!
//! The SDKs of a payment API must throw on every refusal: one that resolves is taken for a payment.

use crate::support::clients::{Case, Clients, said};
use crate::support::documents::text;
use crate::support::solo::add_lines;
use crate::support::*;

const POLICY: &str = "key = \"required\"\nhold = \"12s\"\nwait = \"0s\"\nupstream_timeout = \"6s\"\n";
const CLIENTS: [&str; 7] =
    ["stripe (Python)", "stripe (Node)", "requests", "httpx", "fetch", "axios-retry", "curl"];
/// Takeovers that clients' retries meet: a lease and a window, and no shorter one.
const FAILOVER: &str = "\n[failover]\nlease = \"4s\"\nfloor = \"1s\"\nstable_for = \"5s\"\n";
const LIVE_KEYS: usize = 300;

struct Stage {
    solo: Solo,
    clients: Arc<Clients>,
}

fn stripe(name: &str, more: &str) -> String {
    route(name, &format!("{POLICY}dialect = \"stripe\"\n{more}"))
}

impl Stage {
    async fn start(clients: Arc<Clients>) -> Self {
        let routes = [
            stripe("charges", "recovery = \"probe\"\nprobe = \"/onceway/effects\""),
            stripe("emails", "recovery = \"rerun\"\nupstream = \"down\""),
            route("payouts", &format!("{POLICY}recovery = \"park\"")),
        ];
        let lines = format!(
            "[upstreams.down]\naddresses = [\"http://127.0.0.1:1\"]\n[quota]\nlive_keys = {LIVE_KEYS}\n"
        );
        let solo = Solo::start_with(&routes.concat(), None, |dir| add_lines(dir, &lines)).await;
        Self { solo, clients }
    }

    async fn send(&self, client: &str, case: &Case) -> Value {
        self.clients.send(client, &self.solo.public(), case).await
    }

    async fn state(&self, key: &str) -> Value {
        key_status(&self.solo.region, key).await["state"].clone()
    }

    fn effects(&self, case: &Case) -> u64 {
        effects(&self.solo.ledger, &case.key)
    }

    async fn refused(&self, client: &str, case: &Case, status: u16) -> String {
        let outcome = self.send(client, case).await;
        assert_eq!(outcome["status"], status, "{client}: {outcome}");
        let throws = outcome["threw"].is_string() || !client.starts_with("stripe");
        assert!(throws, "{client} takes a {status} for an answer: {outcome}");
        said(&outcome)
    }

    /// The tenant of [`full`] has as many keys as it may.
    async fn fill_globex(&self) {
        let charge = |key: String| {
            Ask::post(format!("{}/v1/charges", self.solo.public()), BODY)
                .with("Authorization", format!("Bearer {}", full().token))
                .with("Idempotency-Key", key)
        };
        found("the quota of a tenant to be reached", async || {
            let mut filling = JoinSet::new();
            for number in 0..LIVE_KEYS {
                filling.spawn(charge(format!("globex-{number}")).send_owned(PATIENCE));
            }
            for filled in filling.join_all().await {
                filled.unwrap();
            }
            let new = charge(key("globex")).send(PATIENCE).await.unwrap();
            (new.status == 429).then_some(())
        })
        .await;
    }
}

/// A case of a tenant that has as many keys as it may.
fn full() -> Case {
    Case { token: "sk_demo_globex", ..Case::new(0) }
}

/// A client's results: a lost answer, a first request that runs, and each kind of refusal.
async fn row(stage: &Stage, client: &str) -> [String; 3] {
    let first = Case::new(0);
    assert_eq!(stage.send(client, &first).await, json!({ "status": 201 }), "{client}");
    assert_eq!(stage.send(client, &first).await, json!({ "status": 201 }), "{client}: a replay");

    let lost = Case { behave: Some("drop-answer"), ..Case::new(4) };
    let after_loss = stage.send(client, &lost).await;
    assert_eq!(stage.effects(&lost), 1, "{client}: {after_loss}");

    let running = Case { behave: Some("slow=4s"), ..Case::new(10) };
    let first_of_two = Case { retries: 0, ..running.clone() };
    let mut refusals = Vec::new();
    let (outcome, meanwhile) = tokio::join!(stage.send(client, &first_of_two), async {
        until("the key to run", async || stage.state(&running.key).await == "in-progress").await;
        let once = stage.refused(client, &first_of_two, 409);
        let (once, again) = tokio::join!(once, stage.send(client, &running));
        refusals.push(once);
        again
    });
    assert_eq!((said(&outcome).as_str(), stage.effects(&running)), ("201", 1), "{client}");

    let payout = Case { path: "/v1/payouts", ..Case::new(0) };
    assert_eq!(stage.send(client, &payout).await, json!({ "status": 201 }), "{client}");
    for (case, status) in [
        (Case { key: "two words".to_owned(), ..Case::new(0) }, 400),
        (Case { path: "/v1/charges?other=1", ..first.clone() }, 400),
        (Case { token: "sk_nobody_knows", ..Case::new(0) }, 401),
        (Case { path: "/v1/refunds", ..Case::new(0) }, 404),
        (Case { path: "/v1/payouts?other=1", ..payout.clone() }, 422),
        (full(), 429),
        (Case { path: "/v1/emails", ..Case::new(0) }, 502),
        (Case { behave: Some("drop-answer"), ..Case::new(0) }, 504),
    ] {
        refusals.push(stage.refused(client, &case, status).await);
    }
    assert_eq!((stage.effects(&first), stage.effects(&payout)), (1, 1));
    [said(&after_loss), said(&meanwhile), refusals.join(", ")]
}

async fn while_a_region_is_killed(clients: &Arc<Clients>) -> Vec<String> {
    let routes = stripe("charges", "recovery = \"probe\"\nprobe = \"/onceway/effects\"");
    let three = deployment_with(Duration::from_millis(10), Some(routes), FAILOVER).await;
    let [us, eu, _] = &three.regions[..] else { panic!("three regions") };
    let mut cases = Vec::new();
    for _ in CLIENTS {
        cases.push(Case { key: key_at(eu, "home").await, ..Case::new(30) });
    }
    eu.act(Action::Kill, Part::Both).await.unwrap();
    let base = us.public();
    let mut sends = Vec::new();
    for (client, case) in CLIENTS.iter().zip(&cases) {
        let (clients, base, case) = (clients.clone(), base.clone(), case.clone());
        sends.push(tokio::spawn(async move { clients.send(client, &base, &case).await }));
    }
    let mut outcome = Vec::new();
    for ((client, case), sent) in CLIENTS.iter().zip(&cases).zip(sends) {
        let one = sent.await.unwrap();
        let made = effects(&three.ledger, &case.key);
        assert!(made <= 1 && (one["status"] != 201 || made == 1), "{client}: {one}, {made} effects");
        outcome.push(said(&one));
    }
    three.shut_down().await.unwrap();
    outcome
}

#[test]
fn clients_fail_loudly_and_none_makes_a_second_effect() {
    run(async {
        let clients = match tokio::task::spawn_blocking(Clients::install).await.unwrap() {
            Ok(clients) => Arc::new(clients),
            Err(why) => return not_checked(&format!("clients of the registries: {why}")),
        };
        let killed = while_a_region_is_killed(&clients).await;
        let stage = Stage::start(clients).await;
        stage.fill_globex().await;
        let mut table =
            "| client | answer lost | first still runs | home killed |\n|---|---|---|---|\n".to_owned();
        let mut refusals = "| client | 409, 400, 400, 401, 404, 422, 429, 502, 504 |\n|---|---|\n".to_owned();
        for (client, killed) in CLIENTS.iter().zip(killed) {
            let [lost, running, refused] = row(&stage, client).await;
            table += &format!("| {client} | {lost} | {running} | {killed} |\n");
            refusals += &format!("| {client} | {refused} |\n");
        }
        stage.solo.region.act(Action::Kill, Part::Postgres).await.unwrap();
        for client in CLIENTS {
            stage.refused(client, &Case::new(0), 503).await;
        }
        println!("{table}\n{refusals}");
        for table in [table, refusals] {
            let is_there = text("docs/clients.md").contains(&table);
            assert!(is_there, "docs/clients.md has another table than:\n{table}");
        }
    });
}

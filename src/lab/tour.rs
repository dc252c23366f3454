//! The demo's guided tour, with the `curl` command of each step. Every step checks its claim
//! against the ledger, and fails the tour if the claim is false. It reaches a gateway only by ways
//! that a user has.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::TryRng;
use rand::rngs::SysRng;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::compare::{self, Compared, Counts, Workload};
use super::deployment::Deployment;
use super::files::{self, keyed};
use super::gateway::Action;
use super::ledger::{Order, Outcome};
use super::region::{Part, Region};
use super::{hex, lock, wait};
use onceway_client::{Answer, Ask};

const PATIENCE: Duration = Duration::from_secs(20);
const BODY: &str = r#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#;
const OTHER_BODY: &str = r#"{"amount":9900,"currency":"usd","source":"tok_visa"}"#;
const COPIES: usize = 200;
const PAYMENTS: usize = 20;

pub struct Narrator {
    pub json: bool,
}

impl Narrator {
    fn step(&self, number: u32, title: &str) {
        self.line("\n", format_args!("{number}. {title}"));
    }

    fn curl(&self, text: impl Display) {
        self.line("   $ ", text);
    }

    fn say(&self, text: impl Display) {
        self.line("     ", text);
    }

    fn line(&self, mark: &str, text: impl Display) {
        if !self.json {
            println!("{mark}{text}");
        }
    }

    /// Says again what a client is told: one line that changes, or one for each new answer.
    fn still(&self, line: &str, times: u32) {
        match (self.json, stdout().is_terminal()) {
            (false, true) => {
                print!("\r     {line}, {times} times\x1b[K");
                // The next line says more, whether or not this one was seen.
                let _ = stdout().flush();
            }
            (false, false) if times == 1 => println!("     {line}, until its keys have moved"),
            (false, false) | (true, _) => {}
        }
    }

    fn shown(&self, number: u32, fact: &str, detail: Value) {
        let event = json!({ "event": "tour", "step": number, "ok": true, "fact": fact, "detail": detail });
        self.tell(&event, format_args!("   ✓ {fact}"));
    }

    pub fn failed(&self, why: &str) {
        self.tell(&json!({ "event": "tour", "ok": false, "why": why }), format_args!("   ✗ {why}"));
    }

    /// Prints an event, as JSON or in these words.
    pub fn tell(&self, event: &Value, words: impl Display) {
        match self.json {
            true => println!("{event}"),
            false => println!("{words}"),
        }
    }
}

pub async fn show(deployment: &Deployment, narrator: &Narrator) -> Result<()> {
    let regions: Vec<&Region> = deployment.regions.iter().collect();
    let regions = regions.try_into().ok().context("a deployment has three regions")?;
    let mut mark = [0_u8; 4];
    SysRng.try_fill_bytes(&mut mark).context("the system gives no random bytes")?;
    let tour = Tour { deployment, narrator, regions, run: hex(&mark) };
    tour.payment_and_retry().await?;
    tour.copies_at_once().await?;
    tour.other_amount().await?;
    tour.killed_in_mid_payment().await?;
    tour.home_unreachable().await?;
    tour.without_onceway().await?;
    tour.endpoint_killed().await
}

pub fn totals(deployment: &Deployment, narrator: &Narrator) {
    let totals = deployment.ledger.totals(None);
    let keyed: Vec<_> = totals.iter().filter(|total| !total.key.is_empty()).collect();
    let effects: u64 = keyed.iter().map(|total| total.effects).sum();
    let (keys, twice) = (keyed.len(), keyed.iter().filter(|total| total.effects > 1).count());
    let event = json!({ "event": "ledger", "keys": keys, "effects": effects, "twice": twice });
    let words = "keys with more than one effect";
    narrator.tell(&event, format_args!("\nThe ledger: {keys} keys, {effects} effects, {twice} {words}."));
}

struct Tour<'a> {
    deployment: &'a Deployment,
    narrator: &'a Narrator,
    regions: [&'a Region; 3],
    /// Mark that makes the keys of this run new.
    run: String,
}

impl Tour<'_> {
    async fn payment_and_retry(&self) -> Result<()> {
        let [us, eu, ap] = self.regions;
        let key = self.key_homed_at("first", eu).await?;
        let title = "A payment. The client talks to us-east; the key's home is eu-west, so eu-west runs it.";
        self.narrator.step(1, title);
        self.curl(us, &key, BODY, None);
        let first = charge(us, &key, BODY, None).await?;
        ensure!(first.status == 201, "the payment was answered {}: {}", first.status, first.text());
        let region = first.header("onceway-region");
        self.narrator.say(format_args!("201, Onceway-Region: {region}, {}", first.text()));
        ensure!(region == eu.name.as_str(), "it did not run at its home");
        self.effects(&key, 1)?;
        self.narrator.shown(1, "one effect in the ledger", json!({ "region": region }));

        self.narrator.step(2, "The client saw a time-out and retries, this time through ap-south.");
        self.curl(ap, &key, BODY, None);
        let retry = charge(ap, &key, BODY, None).await?;
        let (status, replayed) = (retry.status.as_u16(), retry.header("idempotent-replayed"));
        let original = retry.header("original-request-id");
        let said = format!("{status}, Idempotent-Replayed: {replayed}, Original-Request-Id: {original}");
        self.narrator.say(said);
        ensure!(retry.body == first.body, "the retry's answer differs from the first");
        ensure!(replayed == "true", "the retry was not a replay");
        self.effects(&key, 1)?;
        self.narrator.shown(2, "the same bytes again, and still one effect", json!({}));
        Ok(())
    }

    async fn copies_at_once(&self) -> Result<()> {
        let key = format!("copies-{}", self.run);
        self.narrator.step(3, "200 copies of one payment at once, spread over the three regions.");
        self.curl(self.regions[0], &key, BODY, None);
        let mut copies = JoinSet::new();
        for number in 0..COPIES {
            copies.spawn(ask(self.regions[number % 3], &key, BODY, None).send_owned(PATIENCE));
        }
        let (mut first, mut replays, mut later, mut bodies) = (0, 0, 0, Vec::new());
        while let Some(answer) = copies.join_next().await {
            let answer = answer??;
            match (answer.status.as_u16(), answer.header("idempotent-replayed")) {
                (201, "true") => replays += 1,
                (201, _) => first += 1,
                (409, _) => later += 1,
                (other, _) => anyhow::bail!("a copy was answered {other}: {}", answer.text()),
            }
            if answer.status == 201 && !bodies.contains(&answer.body) {
                bodies.push(answer.body);
            }
        }
        let sentence =
            format!("{first} first answer, {replays} replays, {later} asked to come back later (409)");
        self.narrator.say(sentence);
        ensure!(first == 1 && bodies.len() == 1, "{first} first answers, {} different bodies", bodies.len());
        self.effects(&key, 1)?;
        let detail = json!({ "first": first, "replays": replays, "later": later });
        self.narrator.shown(3, "200 requests, one effect, one answer", detail);
        Ok(())
    }

    async fn other_amount(&self) -> Result<()> {
        let [us, _, _] = self.regions;
        let key = format!("copies-{}", self.run);
        self.narrator.step(4, "The same key with another amount: a bug in the client, and refused as one.");
        self.curl(us, &key, OTHER_BODY, None);
        let refused = charge(us, &key, OTHER_BODY, None).await?;
        self.narrator.say(format_args!("{} {}", refused.status.as_u16(), refused.json()["title"]));
        ensure!(refused.status == 422, "answered {}: {}", refused.status, refused.text());
        self.effects(&key, 1)?;
        self.narrator.shown(4, "422 key-reused, and nothing was charged", json!({}));
        Ok(())
    }

    async fn killed_in_mid_payment(&self) -> Result<()> {
        let [us, eu, _] = self.regions;
        let key = self.key_homed_at("killed", eu).await?;
        let title = "The home's gateway is killed (SIGKILL) while the provider works on a payment.";
        self.narrator.step(5, title);
        self.curl(us, &key, BODY, Some("slow=2s"));
        let payment = tokio::spawn(ask(us, &key, BODY, Some("slow=2s")).send_owned(PATIENCE));
        self.claimed(eu, &key).await?;
        self.narrator.curl(format_args!("curl -X POST {}/regions/eu-west/kill?part=gateway", self.control()));
        eu.act(Action::Kill, Part::Gateway).await?;
        let cut_off = payment.await??;
        let status = cut_off.status.as_u16();
        self.narrator.say(format_args!("the client is told: {status} {}", cut_off.json()["code"]));
        ensure!(cut_off.status.is_server_error(), "a cut-off payment was answered {}", cut_off.status);
        eu.act(Action::Start, Part::Gateway).await?;
        let sentence =
            "the gateway is back; its claim runs out after its hold of 10 s; the client keeps retrying";
        self.narrator.say(sentence);
        self.curl(us, &key, BODY, None);
        let settled = async || {
            let answer = charge(us, &key, BODY, Some("slow=2s")).await?;
            Ok((answer.status == 201).then_some(answer))
        };
        let answer = wait::for_some("the payment to be recovered", Duration::from_secs(40), settled).await?;
        self.narrator.say(format_args!("201, replayed: {}", answer.header("idempotent-replayed")));
        self.effects(&key, 1)?;
        let fact = "the provider was asked what had happened; its answer was settled, nothing ran twice";
        self.narrator.shown(5, fact, json!({ "cut_off": status }));
        Ok(())
    }

    async fn home_unreachable(&self) -> Result<()> {
        let [us, eu, ap] = self.regions;
        let old = self.key_homed_at("old", ap).await?;
        let new = self.key_homed_at("new", ap).await?;
        let first = charge(ap, &old, BODY, None).await?;
        ensure!(first.status == 201, "the payment was answered {}", first.status);
        self.narrator.step(6, "A whole region is lost: ap-south's gateway and Postgres are killed.");
        self.replicated(us, &old).await?;
        self.narrator.curl(format_args!("curl -X POST {}/regions/ap-south/kill", self.control()));
        ap.act(Action::Kill, Part::Both).await?;
        self.curl(us, &old, BODY, None);
        let replay = charge(us, &old, BODY, None).await?;
        let same = replay.status == 201 && replay.body == first.body;
        ensure!(same, "the replay was answered {}", replay.status);
        let fact = "a payment that ap-south had settled is still replayed, from us-east's copy";
        self.narrator.shown(6, fact, json!({}));
        self.curl(eu, &new, BODY, None);
        // A request that was on its way when the connection broke gets 504 outcome-unknown; the
        // next try gets a definite answer.
        let line = async || {
            let answer = charge(eu, &new, BODY, None).await?;
            Ok((answer.json()["code"] == "home-unavailable").then_some(answer))
        };
        let refused = wait::for_some("eu-west to notice that ap-south is gone", PATIENCE, line).await?;
        let (status, after) = (refused.status.as_u16(), refused.header("retry-after"));
        self.narrator.say(format_args!("{status} {}, Retry-After: {after}", refused.json()["code"]));
        ensure!(refused.status == 503, "answered {}: {}", refused.status, refused.text());
        self.effects(&new, 0)?;
        self.narrator.shown(6, "a new key of ap-south is refused with the reason: nothing ran", json!({}));
        let successor = self.taken_over(eu, &new).await?;
        self.effects(&new, 1)?;
        let fact = "its lease had run out, the window was over: the key ran on its successor, once";
        self.narrator.shown(6, fact, json!({ "successor": successor }));
        self.narrator.curl(format_args!("curl -X POST {}/regions/ap-south/start", self.control()));
        ap.act(Action::Start, Part::Both).await?;
        self.home_again(ap).await?;
        let retry = charge(ap, &new, BODY, None).await?;
        ensure!(retry.status == 201, "the retry at home was answered {}: {}", retry.status, retry.text());
        self.effects(&old, 1)?;
        self.effects(&new, 1)?;
        let fact = "ap-south came back without help and took its keys home, with what its successor had run";
        self.narrator.shown(6, fact, json!({ "replayed": retry.header("idempotent-replayed") }));
        self.audited(&[us, eu]).await
    }

    /// Waits until a lost region's key runs elsewhere, and prints the answers. Returns where.
    async fn taken_over(&self, at: &Region, key: &str) -> Result<String> {
        let line = Mutex::new((String::new(), 0_u32));
        let served = async || {
            let answer = charge(at, key, BODY, None).await?;
            if answer.status == 201 {
                return Ok(Some(answer.header("onceway-region").to_owned()));
            }
            let now = format!("{} {}", answer.status.as_u16(), answer.json()["code"]);
            let mut before = lock(&line);
            let times = if before.0 == now { before.1 + 1 } else { 1 };
            *before = (now.clone(), times);
            self.narrator.still(&now, times);
            Ok(None)
        };
        let successor = wait::for_some("the key to run on a successor", PATIENCE, served).await?;
        if !self.narrator.json && stdout().is_terminal() {
            println!();
        }
        self.narrator.say(format_args!("201, Onceway-Region: {successor}"));
        ensure!(successor != "ap-south", "a region that was killed answered");
        Ok(successor)
    }

    async fn home_again(&self, region: &Region) -> Result<()> {
        region.serves().await?;
        let name = region.name.as_str();
        let url = format!("{}/v1/status", region.admin());
        let home = async || {
            let status = Ask::get(&url).send(PATIENCE).await?.json();
            let regions = status["authority"]["regions"].as_array().cloned().unwrap_or_default();
            let own = regions.iter().find(|one| one["name"] == name).map(|one| one["standing"] == "serving");
            let open = status["authority"]["opening"].as_array().is_some_and(Vec::is_empty);
            Ok((own == Some(true) && open).then_some(()))
        };
        wait::for_some("the region's arcs to be home again", Duration::from_secs(60), home).await
    }

    async fn audited(&self, regions: &[&Region]) -> Result<()> {
        let mut listed = 0;
        for region in regions {
            self.narrator.curl(format_args!("onceway audit --admin {}", region.admin()));
            let page = Ask::get(format!("{}/v1/audit", region.admin())).send(PATIENCE).await?.json();
            let runs = page["runs"].as_array().context("an audit lists runs")?.clone();
            ensure!(runs.iter().all(|run| run["verdict"] == "clean"), "the audit found a double: {runs:?}");
            listed += runs.len();
        }
        ensure!(listed > 0, "the key that ran at risk is not listed");
        let fact = "the audit lists what ran at risk, and that none of it ran twice";
        self.narrator.shown(6, fact, json!({ "runs_at_risk": listed }));
        Ok(())
    }

    async fn without_onceway(&self) -> Result<()> {
        let title = "The same loss again, under load, and beside it the naive design: each region its own table, replicated.";
        self.narrator.step(7, title);
        let (span, killed_after) = (Duration::from_secs(6), Duration::from_secs(3));
        let workload = Workload { rate: 20.0, span, victim: 2, killed_after };
        let sentence = "the same keys, clients, retries and machines for both; ap-south is killed while payouts are on their way";
        self.narrator.say(sentence);
        let mark = format!("payout-{}", self.run);
        let Compared { naive, onceway } = compare::run(self.deployment, &workload, &mark).await?;
        self.narrator.say("           keys  payouts made  made twice  in doubt, for an operator  unanswered");
        for (name, counts) in [("naive", naive), ("onceway", onceway)] {
            let Counts { keys, effects, doubles, in_doubt, unanswered } = counts;
            self.narrator.say(format_args!(
                "{name:<8} {keys:>6}  {effects:>12}  {doubles:>10}  {in_doubt:>24}  {unanswered:>10}"
            ));
        }
        ensure!(onceway.doubles == 0, "onceway made {} payouts twice", onceway.doubles);
        let fact = "the naive design pays twice, onceway does not";
        self.narrator.shown(7, fact, json!({ "naive": naive, "onceway": onceway }));
        Ok(())
    }

    async fn endpoint_killed(&self) -> Result<()> {
        let [us, _, _] = self.regions;
        self.narrator.step(8, "One of the two endpoints of us-east's provider, behind TLS, is killed.");
        let [first, _] = self.deployment.endpoints.first().context("us-east has endpoints")?;
        self.narrator.curl(format_args!("curl -X POST {}/endpoints/us-east/1/kill", self.control()));
        let (mut keys, mut again) = (Vec::new(), 0);
        for number in 0..PAYMENTS {
            keys.push(self.key_homed_at(&format!("endpoint-{number}"), us).await?);
        }
        for (number, key) in keys.iter().enumerate() {
            if number == PAYMENTS / 2 {
                first.kill().await;
            }
            while charge(us, key, BODY, None).await?.status != 201 {
                again += 1;
                ensure!(again < PAYMENTS, "payments are refused: the other endpoint does not take them");
                wait::pause(Duration::from_millis(200)).await;
            }
        }
        for key in &keys {
            self.effects(key, 1)?;
        }
        first.open().await?;
        let fact = format!(
            "{PAYMENTS} payments, one effect each, {again} asked to come again: the other endpoint took them"
        );
        self.narrator.shown(8, &fact, json!({ "payments": PAYMENTS, "again": again }));
        Ok(())
    }

    /// A key whose home is `region`, found through an admin listener, as any user could.
    async fn key_homed_at(&self, word: &str, region: &Region) -> Result<String> {
        let [us, _, _] = self.regions;
        for number in 0..200 {
            let key = format!("{word}-{number}-{}", self.run);
            if self.key_status(us, &key).await?["owner"] == region.name.as_str() {
                return Ok(key);
            }
        }
        anyhow::bail!("no key of 200 has its home at {}", region.name)
    }

    async fn key_status(&self, region: &Region, key: &str) -> Result<Value> {
        let (tenant, _) = files::TENANTS[0];
        Ok(Ask::get(format!("{}/v1/keys/{tenant}/{key}", region.admin())).send(PATIENCE).await?.json())
    }

    /// Waits until the key is claimed at its home and the provider has the request.
    async fn claimed(&self, home: &Region, key: &str) -> Result<()> {
        let claimed =
            async || Ok((self.key_status(home, key).await?["state"] == "in-progress").then_some(()));
        wait::for_some("the payment to be claimed", PATIENCE, claimed).await?;
        let (key, tenant) = (key.to_owned(), files::TENANTS[0].0.to_owned());
        let order = Order { key, tenant, path: "/v1/charges".to_owned() };
        let at_work = async || {
            let pending = self.deployment.ledger.probe(&order) == Outcome::Pending;
            Ok(pending.then_some(()))
        };
        wait::for_some("the provider to work on the payment", PATIENCE, at_work).await
    }

    async fn replicated(&self, region: &Region, key: &str) -> Result<()> {
        let copied = async || Ok((self.key_status(region, key).await?["state"] == "settled").then_some(()));
        wait::for_some("the record to be replicated", PATIENCE, copied).await
    }

    fn effects(&self, key: &str, expected: u64) -> Result<()> {
        let found = self.deployment.ledger.totals(Some(key)).iter().map(|total| total.effects).sum::<u64>();
        ensure!(found == expected, "the ledger shows {found} effects of a key, not {expected}");
        Ok(())
    }

    fn curl(&self, region: &Region, key: &str, body: &str, behave: Option<&str>) {
        let behave = behave.map(|behave| format!(" -H 'Demo-Behave: {behave}'")).unwrap_or_default();
        let (public, token) = (region.public(), files::TENANTS[0].1);
        self.narrator.curl(format_args!(
            "curl -i {public}/v1/charges -H 'Authorization: Bearer {token}' -H 'Idempotency-Key: \"{key}\"'{behave} --json '{body}'"
        ));
    }

    fn control(&self) -> String {
        format!("http://127.0.0.1:{}", self.deployment.ports.control)
    }
}

fn ask(region: &Region, key: &str, body: &'static str, behave: Option<&str>) -> Ask {
    let ask = keyed(&region.public(), "/v1/charges", key, body);
    match behave {
        Some(behave) => ask.with("Demo-Behave", behave),
        None => ask,
    }
}

async fn charge(region: &Region, key: &str, body: &'static str, behave: Option<&str>) -> Result<Answer> {
    ask(region, key, body, behave).send(PATIENCE).await
}

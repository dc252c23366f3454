//! The console as its users meet it, over plain HTTP.
//!
//! The server's own tests compare each file with its text, and `tests/long/console.rs` looks at it
//! in a real headless Chromium.

mod pages;

use crate::support::solo::{ANN, BOB, EVE, TOKEN, alone, doubt, solo};
use crate::support::*;
use pages::admin;

pub use onceway::gateway::operator::percent::encode as encoded;

/// A request as a browser sends a form of the page at `base`.
pub fn form(base: &str, path: &str, fields: &[(&str, &str)]) -> Ask {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let mut ask = Ask::post(format!("{base}{path}"), pairs.join("&"));
    ask.headers = vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
    ask.with("Origin", base)
}

/// The answer of the admin API to a GET by the owner of this token.
async fn told(base: &str, token: &str, path: &str) -> Answer {
    ask(Ask::get(format!("{base}{path}")).with("Authorization", format!("Bearer {token}"))).await
}

async fn state(base: &str, token: &str, key: &str) -> Value {
    told(base, token, &format!("/v1/keys/acme/{}", encoded(key))).await.json()
}

pub struct Desk {
    base: String,
    cookie: String,
}

impl Desk {
    pub async fn open(base: &str, token: &str) -> Self {
        let answer = ask(form(base, "/console/sign-in", &[("token", token)])).await;
        let found = (answer.status.as_u16(), answer.header("location"));
        assert_eq!(found, (303, "/console"), "{}", answer.text());
        let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
        Self { base: base.to_owned(), cookie }
    }

    pub async fn page(&self, path: &str) -> Answer {
        ask(Ask::get(format!("{}{path}", self.base)).with("Cookie", &self.cookie)).await
    }

    pub async fn key(&self, key: &str) -> Answer {
        self.page(&format!("/console/key?tenant=acme&key={}", encoded(key))).await
    }

    pub async fn send(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        ask(form(&self.base, path, fields).with("Cookie", &self.cookie)).await
    }
}

pub fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

async fn act(token: &str, path: &str, body: &Value) -> Answer {
    let post = Ask::post(format!("{}{path}", admin().await), body.to_string());
    ask(post.with("Authorization", format!("Bearer {token}"))).await
}

async fn actors(key: &str) -> Vec<String> {
    let entries = state(&admin().await, EVE, key).await["journal"].as_array().cloned().unwrap_or_default();
    entries.iter().filter_map(|entry| entry["actor"].as_str()).map(str::to_owned).collect()
}

#[test]
fn an_act_is_journalled_under_its_tokens_name() {
    run(async {
        let _alone = alone().await;
        let public = solo().await.public();
        let release = json!({ "reason": "the provider knows nothing of it", "actor": "mallory" });
        for (token, name) in [(ANN, "ann"), (TOKEN, "mallory (by the shared token)")] {
            let key = key("named");
            doubt(&public, &key).await;
            let done = act(token, &format!("/v1/keys/acme/{}/release", encoded(&key)), &release).await;
            assert_eq!(done.status, StatusCode::OK, "{}", done.text());
            assert_eq!(actors(&key).await, [name]);
        }
    });
}

#[test]
fn the_look_role_sees_all_and_changes_nothing() {
    run(async {
        let _alone = alone().await;
        let (base, key) = (admin().await, key("looked-at"));
        doubt(&solo().await.public(), &key).await;
        let name = encoded(&key);
        let dry = json!({ "reason": "a test", "actor": "eve", "status": 201, "dry_run": true });
        let acts = [
            (format!("/v1/keys/acme/{name}/release"), json!({ "reason": "a test", "actor": "eve" })),
            (format!("/v1/keys/acme/{name}/settle"), dry),
            ("/v1/admin/region/drain".to_owned(), json!({ "region": "solo", "actor": "eve" })),
        ];
        for (path, body) in &acts {
            let refused = act(EVE, path, body).await;
            let said = refused.json();
            assert_eq!((refused.status.as_u16(), &said["code"]), (403, &json!("forbidden")), "{path}");
            assert!(said["detail"].as_str().unwrap().starts_with("eve may only look"), "{said}");
        }
        let desk = Desk::open(&base, EVE).await;
        let page = desk.key(&key).await.text();
        assert!(page.contains("eve may only look") && !page.contains("<form class=\"act\""), "{page}");
        let fields = [("tenant", "acme"), ("key", &key), ("reason", "a test"), ("confirmed", "yes")];
        let refused = desk.send("/console/release", &fields).await;
        assert!(refused.status == 403 && refused.text().contains("Nothing was done"), "{}", refused.text());
        assert_eq!(actors(&key).await, [""; 0]);
        let done = act(TOKEN, &acts[0].0, &acts[0].1).await;
        assert_eq!(done.status, StatusCode::OK, "{}", done.text());
    });
}

async fn command(token: &str, words: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), token).unwrap();
    let mut command = tokio::process::Command::new(program());
    command.args(words).args(["--admin", &admin().await]).arg("--token-file").arg(file.path());
    command.output().await.unwrap()
}

/// Writes the region's file, and waits until the gateway has taken it over.
async fn taken_over(text: &str) {
    let loaded = async || {
        let status = told(&admin().await, TOKEN, "/v1/status").await.json();
        status["config"]["loaded_ms"].as_i64()
    };
    let before = loaded().await;
    fs::write(solo().await.dir.join("solo.toml"), text).unwrap();
    solo().await.region.process().unwrap().hang_up();
    until("the file to be taken over", async || loaded().await > before).await;
}

fn last_word(text: &str, line: &str) -> String {
    let line = text.lines().find(|found| found.contains(line)).unwrap_or_else(|| panic!("no {line}: {text}"));
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn a_second_person_approves_a_release() {
    run(async {
        let _alone = alone().await;
        let solo = solo().await;
        let before = fs::read_to_string(solo.dir.join("solo.toml")).unwrap();
        let asks = "operators = \"operators.toml\"\nsecond_person = [\"release\"]\n";
        taken_over(&before.replace("operators = \"operators.toml\"\n", asks)).await;
        let key = key("seconded");
        doubt(&solo.public(), &key).await;
        let release = ["key", "release", "acme", &key, "--reason", "the provider knows nothing of it"];
        let refused = command(BOB, &release).await;
        assert_eq!(refused.status.code(), Some(3), "{}", err(&refused));
        let request = last_word(&err(&refused), "onceway approve ey");
        for (token, why) in [(BOB, "bob may not approve"), (TOKEN, "needs a token with a name")] {
            ends(&command(token, &["approve", &request]).await, 1, why);
        }
        let shown = command(ANN, &["approve", &request, "--dry-run"]).await;
        assert!(out(&shown).contains("Nothing was approved."), "{}", out(&shown));
        let approved = command(ANN, &["approve", &request]).await;
        let text = out(&approved);
        has(&text, &["v1/keys/acme/", "bob", "in-doubt", "the provider knows nothing of it"]);
        let approval = last_word(&text, "--approval ey");
        let other = [&release[..5], &["another reason", "--approval", &approval]].concat();
        assert_eq!(command(BOB, &other).await.status.code(), Some(3));
        let done = command(BOB, &[&release[..], &["--approval", &approval]].concat()).await;
        assert_eq!(done.status.code(), Some(0), "{}", err(&done));
        assert_eq!(actors(&key).await, ["bob, approved by ann"]);
        approved_on_the_console().await;
        taken_over(&before).await;
    });
}

/// The console shows the request of a refused release, and takes the approval.
async fn approved_on_the_console() {
    let (base, key) = (admin().await, key("seconded-by-form"));
    doubt(&solo().await.public(), &key).await;
    let desk = Desk::open(&base, BOB).await;
    let seen = hidden(&desk.key(&key).await.text(), "seen");
    let fields =
        [("tenant", "acme"), ("key", &*key), ("seen", &*seen), ("reason", "r"), ("confirmed", "yes")];
    let send =
        async |more: &[(&str, &str)]| desk.send("/console/release", &[&fields[..], more].concat()).await;
    let refused = send(&[]).await;
    let text = refused.text();
    assert!(refused.status == 403 && text.contains("a second person"), "{text}");
    assert_eq!(actors(&key).await, [""; 0]);
    let request = text.split("readonly spellcheck=\"false\">").nth(1).unwrap_or_else(|| panic!("{text}"));
    let approved = command(ANN, &["approve", request.split('<').next().unwrap()]).await;
    let approval = last_word(&out(&approved), "--approval ey");
    let done = send(&[("approval", &approval)]).await;
    assert_eq!(done.status, 303, "{}", done.text());
    assert_eq!(actors(&key).await, ["bob, approved by ann"]);
}

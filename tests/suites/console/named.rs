//! Named operators over the admin API and the console: their rights, and the name in the journal.
//!
//! A test must look at the journal, not at what an act answered.

use super::pages::admin;
use crate::console::{Desk, encoded, hidden, state, told};
use crate::support::console::{ANN, BOB, EVE, TOKEN, alone, doubt, solo};
use crate::support::*;

async fn act(token: &str, path: &str, body: &Value) -> Answer {
    let post = onceway_client::Ask::post(format!("{}{path}", admin().await), body.to_string());
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

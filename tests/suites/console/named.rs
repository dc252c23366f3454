//! Named operators over the admin API and the console: their rights, and the name in the journal.
//!
//! A test must look at the journal, not at what an act answered.

use http::StatusCode;
use onceway::fleet::client::Answer;
use serde_json::{Value, json};

use super::pages::{admin, get, hidden, page_of};
use crate::console::{encoded, form};
use crate::support::console::{ANN, EVE, TOKEN, alone, doubt, solo};
use crate::support::{ask, key, run};

async fn act(token: &str, path: &str, body: &Value) -> Answer {
    let post = onceway::fleet::client::Ask::post(format!("{}{path}", admin().await), body.to_string());
    ask(post.with("Authorization", format!("Bearer {token}"))).await
}

/// The names under which a key was acted on.
async fn actors(key: &str) -> Vec<String> {
    let path = format!("/v1/keys/acme/{}", encoded(key));
    let status = ask(get(&admin().await, &path).with("Authorization", format!("Bearer {EVE}"))).await.json();
    let entries = status["journal"].as_array().cloned().unwrap_or_default();
    entries.iter().filter_map(|entry| entry["actor"].as_str()).map(str::to_owned).collect()
}

#[test]
fn an_act_is_journalled_under_the_name_of_its_token() {
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
fn who_may_only_look_sees_all_and_changes_nothing() {
    run(async {
        let _alone = alone().await;
        let (base, key) = (admin().await, key("looked-at"));
        doubt(&solo().await.public(), &key).await;
        let name = encoded(&key);
        let acts = [
            (format!("/v1/keys/acme/{name}/release"), json!({ "reason": "a test", "actor": "eve" })),
            (
                format!("/v1/keys/acme/{name}/settle"),
                json!({ "reason": "a test", "actor": "eve", "status": 201, "dry_run": true }),
            ),
            ("/v1/admin/region/drain".to_owned(), json!({ "region": "solo", "actor": "eve" })),
        ];
        for (path, body) in &acts {
            let refused = act(EVE, path, body).await;
            let said = refused.json();
            assert_eq!((refused.status.as_u16(), &said["code"]), (403, &json!("forbidden")), "{path}");
            assert!(said["detail"].as_str().unwrap().starts_with("eve may only look"), "{said}");
        }
        let signed_in = ask(form(&base, "/console/sign-in", &[("token", EVE)])).await;
        let cookie = signed_in.header("set-cookie").split(';').next().unwrap().to_owned();
        let page = page_of(&base, &cookie, &key).await.text();
        assert!(page.contains("eve may only look") && !page.contains("<form class=\"act\""), "{page}");
        let fields = [("tenant", "acme"), ("key", &key), ("reason", "a test"), ("confirmed", "yes")];
        let refused = ask(form(&base, "/console/release", &fields).with("Cookie", &cookie)).await;
        assert!(refused.status == 403 && refused.text().contains("Nothing was done"), "{}", refused.text());
        assert_eq!(actors(&key).await, [""; 0]);
        let done = act(TOKEN, &acts[0].0, &acts[0].1).await;
        assert_eq!(done.status, StatusCode::OK, "{}", done.text());
    });
}

#[test]
fn the_console_acts_under_the_name_of_its_session() {
    run(async {
        let _alone = alone().await;
        let (base, key) = (admin().await, key("by-form"));
        doubt(&solo().await.public(), &key).await;
        let signed_in = ask(form(&base, "/console/sign-in", &[("token", ANN)])).await;
        assert_eq!(signed_in.status, 303, "{}", signed_in.text());
        let cookie = signed_in.header("set-cookie").split(';').next().unwrap().to_owned();
        let page = page_of(&base, &cookie, &key).await.text();
        assert!(page.contains("<b>ann</b>") && !page.contains("name=\"actor\""), "{page}");
        let seen = hidden(&page, "seen");
        let fields = [
            ("tenant", "acme"),
            ("key", &key),
            ("seen", &seen),
            ("reason", "a test"),
            ("actor", "mallory"),
            ("confirmed", "yes"),
        ];
        let done = ask(form(&base, "/console/release", &fields).with("Cookie", &cookie)).await;
        assert_eq!(done.status, 303, "{}", done.text());
        assert_eq!(actors(&key).await, ["ann"]);
    });
}

//! What operators see: coverage of state-changing routes, as the admin listener and `onceway coverage` tell it.
//!
//! Each test has a region of its own, because what it asserts is everything that a gateway has seen. It must not look at
//! anything but public doors, commands and the ledger.

mod support;

use std::process::{Command, Output};

use onceway::fleet::client::Ask;
use support::solo::{Solo, routes};
use support::{BODY, ask, key, post, program, run};

/// Runs a command that asks admin listeners.
async fn onceway(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program());
    command.args(args).env_remove("ONCEWAY_ADMIN").env_remove("ONCEWAY_ADMIN_TOKEN_FILE");
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Output { status, stdout, stderr } = ended.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

fn with_method(mut request: Ask, method: &str) -> Ask {
    request.method = method.parse().unwrap();
    request
}

#[test]
fn coverage_tells_what_is_unprotected_and_fails_a_build_over_it() {
    run(async {
        let solo = Solo::start(&routes(), None).await;
        let (public, admin) = (solo.public(), solo.region.admin());
        let coverage = ["coverage", "--admin", &admin];
        assert_eq!(onceway(&coverage).await.0, Some(3), "nothing was seen, so nothing is known");

        ask(post(&public, "/v1/charges", &key("covered"), BODY)).await;
        ask(Ask::post(format!("{public}/v1/blobs"), BODY)).await;
        ask(with_method(Ask::post(format!("{public}/v1/customers/cus_4711"), BODY), "PUT")).await;
        assert_eq!(onceway(&coverage).await.0, Some(0));
        let (code, text, _) = onceway(&with(&coverage, &["--strict"])).await;
        assert_eq!(code, Some(1), "{text}");

        ask(Ask::post(format!("{public}/v1/notes"), BODY)).await;
        for id in ["cus_4711", "cus_4712"] {
            ask(Ask::post(format!("{public}/v1/customers/{id}/cards"), BODY)).await;
        }
        let report = ask(Ask::get(format!("{admin}/v1/coverage"))).await;
        assert!(!report.text().contains("cus_"), "{}", report.text());
        let (code, text, error) = onceway(&coverage).await;
        assert_eq!(
            (code, error.trim()),
            (Some(1), "onceway: 2 kinds of state-changing requests are not protected")
        );
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for line in [
            "POST /v1/customers/{}/cards 2 - no route, refused",
            "POST /v1/notes 1 notes came without a key, passed",
            "PUT /v1/customers/{} 1 - no route, passed",
            "POST /v1/blobs 1 blobs key = \"off\"",
            "path = \"/v1/customers/{id}/cards\"",
        ] {
            assert!(lines.iter().any(|said| said == line), "{line:?} in {text}");
        }
        assert!(!text.contains("charges"), "{text}");
        let (_, text, _) = onceway(&with(&coverage, &["--all"])).await;
        assert!(text.contains("charges"), "{text}");

        // Two gateways are added up; here the same one twice.
        let (_, text, _) = onceway(&with(&coverage, &["--json", "--admin", &admin])).await;
        let merged: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(merged["unprotected"][0]["count"], 4, "{merged}");
        let (code, _, error) = onceway(&with(&coverage, &["--admin", "http://127.0.0.1:1"])).await;
        assert_eq!(code, Some(2), "{error}");
    });
}

//! Coverage of state-changing routes and shadow mode, as the admin listener and the commands show
//! them.
//!
//! Each test has a region of its own, because it asserts everything that a gateway has seen.

use crate::support::*;

async fn onceway(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program());
    command.args(args).env_remove("ONCEWAY_ADMIN").env_remove("ONCEWAY_ADMIN_TOKEN_FILE");
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    (ended.status.code(), out(&ended), err(&ended))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn coverage_names_unprotected_routes_and_fails() {
    let solo = Solo::start(&routes(), None).await;
    let (public, admin) = (solo.public(), solo.region.admin());
    let coverage = ["coverage", "--admin", &admin];
    assert_eq!(onceway(&coverage).await.0, Some(3), "nothing was seen, so nothing is known");

    ask(post(&public, "/v1/charges", &key("covered"), BODY)).await;
    let (code, text, _) = onceway(&coverage).await;
    assert!(code == Some(0) && text.starts_with("Protected: all 1 "), "{code:?} {text}");
    ask(Ask::post(format!("{public}/v1/blobs"), BODY)).await;
    let put = Ask::post(format!("{public}/v1/customers/cus_4711"), BODY);
    ask(Ask { method: Method::PUT, ..put }).await;
    assert_eq!(onceway(&coverage).await.0, Some(0));
    let (code, text, _) = onceway(&[&coverage[..], &["--strict"]].concat()).await;
    assert_eq!(code, Some(1), "{text}");

    ask(Ask::post(format!("{public}/v1/notes"), BODY)).await;
    for id in ["cus_4711", "cus_4712"] {
        ask(Ask::post(format!("{public}/v1/customers/{id}/cards"), BODY)).await;
    }
    let report = ask(Ask::get(format!("{admin}/v1/coverage"))).await;
    assert!(!report.text().contains("cus_"), "{}", report.text());
    let (code, text, error) = onceway(&coverage).await;
    assert_eq!(code, Some(1));
    assert_eq!(error.trim(), "onceway: 2 kinds of state-changing requests are not protected");
    let lines = lines(&text);
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
    let (_, text, _) = onceway(&[&coverage[..], &["--all"]].concat()).await;
    assert!(text.contains("charges"), "{text}");

    // The command adds two gateways up; here the same one twice.
    let (_, text, _) = onceway(&[&coverage[..], &["--json", "--admin", &admin]].concat()).await;
    let merged: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(merged["unprotected"][0]["count"], 4, "{merged}");
    let (code, _, error) = onceway(&[&coverage[..], &["--admin", "http://127.0.0.1:1"]].concat()).await;
    assert_eq!(code, Some(3), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_mode_passes_all_and_reports_its_verdicts() {
    let solo = Solo::start(&routes(), None).await;
    let (public, admin) = (solo.public(), solo.region.admin());
    let shadow = ["shadow", "--admin", &admin];
    let (code, _, error) = onceway(&shadow).await;
    assert_eq!(code, Some(1), "a gateway that decides is in no shadow mode");
    assert!(error.contains("404"), "{error}");

    solo.region.act(Action::Kill, Part::Both).await.unwrap();
    let file = solo.dir.join("shadow.toml");
    let usual = fs::read_to_string(solo.dir.join("solo.toml")).unwrap();
    fs::write(&file, format!("shadow = true\n{usual}")).unwrap();
    let serve = ["serve".into(), "--config".into(), file.into_os_string()];
    let gateway = Process::spawn(&launch(program(), serve, &solo.dir, "shadow.log")).unwrap();
    until("the gateway to be ready without its store", async || {
        let ready = Ask::get(format!("{admin}/readyz")).send(PATIENCE).await;
        ready.is_ok_and(|ready| ready.status == 200 && ready.json()["serves"] == false)
    })
    .await;

    let (twice, unkeyed) = (key("twice"), Ask::post(format!("{public}/v1/charges"), BODY));
    for request in [
        post(&public, "/v1/charges", &twice, BODY),
        post(&public, "/v1/charges", &twice, BODY),
        post(&public, "/v1/charges", &twice, OTHER_BODY),
        unkeyed.clone().with("Authorization", "Bearer sk_demo_acme"),
        unkeyed,
        Ask::post(format!("{public}/v1/blobs"), BODY),
    ] {
        let answer = ask(request).await;
        assert!(answer.status.is_success(), "{}", answer.text());
        assert_eq!((answer.header("idempotent-replayed"), answer.header("onceway-region")), ("", ""));
    }
    assert_eq!(effects(&solo.ledger, &twice), 3, "nothing is enforced");
    let (code, text, error) = onceway(&shadow).await;
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let lines = lines(&text);
    for line in
        ["charges 1 1 0 0 0 0 credential-invalid 1, key-missing 1, key-reused 1", "blobs 0 0 0 1 0 0 0"]
    {
        assert!(lines.iter().any(|said| said == line), "{line:?} in {text}");
    }
    let metrics = ask(Ask::get(format!("{admin}/metrics"))).await.text();
    let replayed = r#"onceway_shadow_total{route="charges",verdict="replayed",code="-"} 1"#;
    assert!(metrics.lines().any(|line| line == replayed), "{metrics}");
    let build = format!("onceway_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    for line in [&build, "process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_open_fds "]
    {
        assert!(metrics.lines().any(|shown| shown.starts_with(line)), "{line} in {metrics}");
    }
    gateway.stop(Signal::TERM, PATIENCE).await.unwrap();
    let log = fs::read_to_string(solo.dir.join("shadow.log")).unwrap();
    assert_eq!(log.matches("passed, but would not have been").count(), 4, "{log}");
    assert!(!log.contains(&twice), "no key stands in a log");
}

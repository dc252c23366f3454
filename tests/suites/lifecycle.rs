//! The life of a key after its request: recovered without its client, ruled by an operator's
//! commands, expired and forgotten. One region alone, by real processes.

use crate::support::solo::keyed;
use crate::support::*;

/// One probes, one parks, one forgets soon and one never does.
fn life() -> String {
    [
        keyed("charges", "recovery = \"probe\"\nprobe = \"/onceway/effects\""),
        keyed("payouts", "recovery = \"park\""),
        keyed("emails", "recovery = \"park\"\nretention = \"7s\"\ntombstone = \"4s\""),
        keyed("notes", "recovery = \"park\"\nretention = \"never\""),
    ]
    .concat()
}

async fn solo() -> &'static Solo {
    static SOLO: OnceCell<Solo> = OnceCell::const_new();
    SOLO.get_or_init(|| async { Solo::start(&life(), None).await }).await
}

async fn state(solo: &Solo, key: &str) -> String {
    key_status(&solo.region, key).await["state"].as_str().unwrap_or_default().to_owned()
}

async fn parked(solo: &Solo, word: &str) -> String {
    let key = key(word);
    let answer =
        ask(post(&solo.public(), "/v1/payouts", &key, BODY).with("Demo-Behave", "drop-answer")).await;
    assert_eq!(code(&answer), "outcome-unknown");
    assert_eq!(state(solo, &key).await, "in-doubt");
    key
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_leaves_no_key_stuck() {
    // Its own region: the gateway is killed.
    let solo = Solo::start(&life(), None).await;
    let key = key("killed");
    let request = post(&solo.public(), "/v1/charges", &key, BODY).with("Demo-Behave", "slow=700ms");
    let cut_off = tokio::spawn(request.send_owned(PATIENCE));
    until("the charge to be in progress", async || state(&solo, &key).await == "in-progress").await;
    solo.region.act(Action::Kill, Part::Gateway).await.unwrap();
    assert!(cut_off.await.unwrap().is_err(), "a killed gateway answers nobody");
    until("the effect to happen all the same", async || effects(&solo.ledger, &key) == 1).await;
    solo.region.act(Action::Start, Part::Gateway).await.unwrap();
    solo.serves().await;
    // No client comes back.
    until("the key to become settled by itself", async || state(&solo, &key).await == "settled").await;
    let page = metrics(&solo.region).await;
    assert!(page.contains("onceway_swept_total{result=\"abandoned\"} 1"), "found by the sweep");
    assert!(page.contains("onceway_swept_total{result=\"settled\"} 1"), "settled by the sweep");
    let replay = ask(post(&solo.public(), "/v1/charges", &key, BODY)).await;
    assert_eq!((replay.status.as_u16(), replay.header("idempotent-replayed")), (201, "true"));
    assert_eq!(effects(&solo.ledger, &key), 1);
}

#[test]
fn an_operator_settles_and_releases_keys_in_doubt() {
    run(async {
        let solo = solo().await;
        let (happened, did_not) = (parked(solo, "happened").await, parked(solo, "did-not").await);
        let listed = onceway(&solo.region, &["doubts"]).await;
        assert_eq!(listed.status.code(), Some(3), "{}", err(&listed));
        for key in [&happened, &did_not] {
            let line = out(&listed);
            let line = line.lines().find(|line| line.contains(key.as_str())).expect("both keys are listed");
            assert!(["acme", "payouts", "solo#1"].iter().all(|part| line.contains(part)), "{line}");
        }
        // Its request may still be at work: not even an operator can know.
        let early = onceway(&solo.region, &["key", "release", "acme", &did_not, "--reason", "hasty"]).await;
        ends(&early, 3, "may still be running");
        let over = async |key: &str| {
            let page = onceway(&solo.region, &["doubts", "--json"]).await;
            let page: Value = serde_json::from_str(&out(&page)).unwrap();
            let doubts = page["doubts"].as_array().unwrap().clone();
            doubts.iter().any(|doubt| doubt["key"] == key && doubt["over_in_ms"] == 0)
        };
        until("both attempts to be over", async || over(&happened).await && over(&did_not).await).await;

        until("`status` to count them", async || {
            let status = out(&onceway(&solo.region, &["status"]).await);
            status.lines().any(|line| line.starts_with("in doubt") && line.contains("keys of this region"))
        })
        .await;
        let settle = ["key", "settle", "acme", &happened, "--status", "201", "--reason", "ledger has it"];
        let answer = ["--header", "Content-Type: application/json", "--body", "{\"id\":\"po_17\"}"];
        let settled = onceway(&solo.region, &[&settle[..], &answer[..]].concat()).await;
        assert_eq!((settled.status.code(), err(&settled).as_str()), (Some(0), ""));
        let shown = out(&settled);
        has(&shown, &["settled-by-hand", "ada", "ledger has it"]);
        let replay = ask(post(&solo.public(), "/v1/payouts", &happened, BODY)).await;
        assert_eq!((replay.status.as_u16(), replay.header("idempotent-replayed")), (201, "true"));
        assert_eq!(replay.text(), r#"{"id":"po_17"}"#);
        assert_eq!(replay.header("content-type"), "application/json");
        let again = onceway(&solo.region, &[&settle[..], &["--body", ""]].concat()).await;
        ends(&again, 1, "not in doubt: it is settled");

        let args = ["key", "release", "acme", &did_not, "--reason", "no such payout", "--actor", "grace"];
        let released = onceway(&solo.region, &args).await;
        assert_eq!(released.status.code(), Some(0), "{}", err(&released));
        assert!(out(&released).contains("a retry of the client runs again"));
        let before = effects(&solo.ledger, &did_not);
        let retry = ask(post(&solo.public(), "/v1/payouts", &did_not, BODY)).await;
        assert_eq!((retry.status.as_u16(), retry.header("idempotent-replayed")), (201, ""));
        assert_eq!(effects(&solo.ledger, &did_not), before + 1, "a released key runs again");
        let shown = out(&onceway(&solo.region, &["key", "show", "acme", &did_not]).await);
        assert!(shown.contains("released-by-hand") && shown.contains("grace"), "{shown}");
        let doubts = async || onceway(&solo.region, &["doubts"]).await.status.code();
        until("the list to be empty", async || doubts().await == Some(0)).await;

        let failed = key("failed");
        let failing = post(&solo.public(), "/v1/payouts", &failed, BODY).with("Demo-Behave", "status=500");
        assert_eq!(code(&ask(failing).await), "outcome-unknown");
        let shown = out(&onceway(&solo.region, &["key", "show", "acme", &failed]).await);
        assert!(shown.contains("asked for by Demo-Behave"), "what the upstream said: {shown}");
        let logged = log(&solo.region).await;
        assert!(logged.contains("asked for by Demo-Behave"), "{logged}");
    });
}

#[test]
fn an_incomplete_act_is_refused() {
    run(async {
        let solo = solo().await;
        let absent = key("absent");
        let key = |act: &str| format!("keys/acme/{absent}/{act}");
        let (release, settle, forget) = (key("release"), key("settle"), key("forget"));
        let to =
            |path: &str, body: &str| Ask::post(format!("{}/v1/{path}", solo.region.admin()), body.to_owned());
        let whole = r#"{"reason":"r","actor":"a"}"#;
        let cookie = r#"{"reason":"r","actor":"a","status":200,"headers":[["Set-Cookie","x"]]}"#;
        let plan = |regions: &str| {
            format!(r#"{{"ring":{{"seed":1,"place_by":"key","regions":[{regions}],"pins":[]}},"escrow":[]}}"#)
        };
        let (empty, other) = (plan(""), plan(r#"{"name":"solo","weight":1}"#));
        for (path, body, status, says) in [
            (&*release, "{", 400, "no act"),
            (&release, r#"{"reason":" ","actor":"a"}"#, 400, "say why"),
            (&release, r#"{"reason":"r"}"#, 400, "say who"),
            (&release, r#"{"reason":"r","actor":"a","status":200}"#, 400, "no answer"),
            (&settle, whole, 400, "name the status"),
            (&settle, r#"{"reason":"r","actor":"a","status":99}"#, 400, "200 to 599"),
            (&settle, cookie, 400, "set-cookie"),
            (&settle, r#"{"reason":"r","actor":"a","status":200,"typo":1}"#, 400, "no act"),
            (&release, whole, 409, "not in doubt: it is absent"),
            (&forget, whole, 405, "settle"),
            ("admin/region/drain", "{}", 400, ""),
            ("admin/region/drain", r#"{"region":"solo","actor":" "}"#, 400, ""),
            ("admin/region/drain", r#"{"region":"solo","actor":"a","force":true}"#, 400, ""),
            ("admin/region/drain", r#"{"region":"So Lo","actor":"a"}"#, 400, ""),
            ("admin/region/resume", r#"{"region":"solo","actor":"a","force":true}"#, 400, ""),
            ("admin/takeover", r#"{"region":"solo","actor":"a","reason":""}"#, 400, ""),
            ("admin/ring/plan", &empty, 400, ""),
            ("admin/ring/plan", &other, 409, ""),
            ("admin/elsewhere", "{}", 404, ""),
        ] {
            let answer = ask(to(path, body)).await;
            let outcome = (answer.status.as_u16(), answer.text());
            assert!(outcome.0 == status && outcome.1.contains(says), "{path} {body}: {outcome:?}");
            assert_eq!(answer.header("content-type"), "application/problem+json");
        }
        let plain = vec![("Content-Type".into(), "text/plain".into())];
        let plain = ask(Ask { headers: plain, ..to(&release, whole) }).await;
        assert!(plain.status == 415 && plain.text().contains("application/json"), "{}", plain.text());
        let many = format!(r#"{{"reason":"{}"}}"#, "x".repeat(3 << 20));
        // Cut off while it is read, or refused.
        if let Ok(answer) = to(&release, &many).send(PATIENCE).await {
            assert_eq!(answer.status, 413);
        }
        assert_eq!(state(solo, &absent).await, "absent");
    });
}

#[test]
fn an_expired_key_is_refused_and_then_forgotten() {
    run(async {
        let solo = solo().await;
        let key = key("gift");
        let first = ask(post(&solo.public(), "/v1/emails", &key, BODY)).await;
        assert_eq!(first.status, 201, "{}", first.text());
        let again = async || ask(post(&solo.public(), "/v1/emails", &key, BODY)).await;
        until("the key to expire", async || again().await.status == 410).await;
        assert_eq!(effects(&solo.ledger, &key), 1);
        until("the key to be forgotten", async || state(solo, &key).await == "absent").await;
        let new = again().await;
        assert_eq!((new.status.as_u16(), new.header("idempotent-replayed")), (201, ""));
        assert_eq!(effects(&solo.ledger, &key), 2, "a forgotten key is new");
        let kept = ask(post(&solo.public(), "/v1/notes", &crate::support::key("ledger"), BODY)).await;
        assert_eq!(kept.status, 201, "{}", kept.text());
        assert_eq!(kept.header("idempotency-expires"), "Fri, 31 Dec 9999 23:59:59 GMT", "never");
    });
}

#[test]
fn a_founded_register_refuses_impossible_acts() {
    run(async {
        let solo = solo().await;
        let again = solo.region.run(&["init"]).await.unwrap();
        ends(&again, 1, "the register is founded: epoch 1");
        let drained = onceway(&solo.region, &["region", "drain", "solo"]).await;
        ends(&drained, 1, "the last region that serves");
        ends(&onceway(&solo.region, &["region", "resume", "north"]).await, 2, "no region north");
        let resume = format!("{}/v1/admin/region/resume", solo.region.admin());
        let resumed = ask(Ask::post(resume, r#"{"region":"solo","actor":"a"}"#)).await;
        assert_eq!((resumed.status.as_u16(), resumed.json()["epoch"].as_u64()), (200, Some(1)));
    });
}

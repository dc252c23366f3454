//! Three real regions: every key sticks to its home, whichever region is asked; replays are served
//! everywhere; nothing leaks.
//!
//! One deployment serves all tests of this file. They must not break it; `failures.rs` does.

use crate::support::*;

async fn three() -> &'static Deployment {
    static THREE: OnceCell<Deployment> = OnceCell::const_new();
    THREE.get_or_init(|| deployment(Duration::from_millis(20))).await
}

async fn charge(region: usize, key: &str, body: &str) -> Answer {
    ask(post(&three().await.regions[region].public(), "/v1/charges", key, body)).await
}

#[test]
fn fifty_copies_over_three_regions_have_one_effect() {
    run(async {
        let key = key("fifty");
        let regions = &three().await.regions;
        let copy = |number: usize| post(&regions[number % 3].public(), "/v1/charges", &key, BODY);
        let copies: JoinSet<_> = (0..50).map(|number| ask(copy(number))).collect();
        let answers = copies.join_all().await;
        let (done, later): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
        for answer in &later {
            assert_eq!((answer.status.as_u16(), code(answer).as_str()), (409, "in-progress"));
            assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|after| after >= 1));
        }
        let first = done.iter().filter(|answer| answer.header("idempotent-replayed").is_empty()).count();
        let bodies: BTreeSet<_> = done.iter().map(|answer| answer.body.clone()).collect();
        assert_eq!((first, bodies.len(), effects(&three().await.ledger, &key)), (1, 1, 1));
    });
}

#[test]
fn every_key_runs_at_its_home_region() {
    run(async {
        let mut homes = BTreeSet::new();
        for number in 0..12 {
            let key = key("home");
            let found = key_status(&three().await.regions[number % 3], &key).await;
            let home = found["owner"].as_str().unwrap().to_owned();
            assert_eq!(found["order"][0], home.as_str());
            for region in 0..3 {
                let again = key_status(&three().await.regions[region], &key).await;
                assert_eq!((&again["owner"], &again["arc"]), (&found["owner"], &found["arc"]));
            }
            let answer = charge(number % 3, &key, BODY).await;
            assert_eq!((answer.status.as_u16(), answer.header("onceway-region")), (201, home.as_str()));
            let booked = three().await.ledger.totals(Some(&key));
            assert_eq!((booked[0].effects, &booked[0].regions), (1, &vec![home.clone()]));
            homes.insert(home);
        }
        assert!(homes.len() > 1, "twelve keys, one home: {homes:?}");
    });
}

#[test]
fn every_region_replays_copies_and_refuses_mismatches_locally() {
    run(async {
        let key = key("copied");
        let first = charge(0, &key, BODY).await;
        for region in &three().await.regions {
            becomes(region, &key, "settled").await;
        }
        for region in 0..3 {
            let replays = series(&three().await.regions[region], "onceway_local_replays_total");
            let before = replays.await.expect("the counter of local replays");
            let replay = charge(region, &key, BODY).await;
            assert_eq!((replay.status.as_u16(), &replay.body), (201, &first.body));
            assert_eq!(replay.header("idempotent-replayed"), "true");
            assert_eq!(replay.header("onceway-region"), first.header("onceway-region"));
            let other = charge(region, &key, OTHER_BODY).await;
            assert_eq!((other.status.as_u16(), code(&other).as_str()), (422, "key-reused"));
            // At the home it is no copy; elsewhere both answers came from one.
            let is_home = first.header("onceway-region") == three().await.regions[region].name.as_str();
            let after = series(&three().await.regions[region], "onceway_local_replays_total").await;
            assert!(is_home || after >= Some(before + 2.0), "asked the home: {before}, then {after:?}");
        }
        assert_eq!(effects(&three().await.ledger, &key), 1);
    });
}

#[test]
fn every_metric_has_help_and_status_tells_the_lag() {
    run(async {
        for region in &three().await.regions {
            let page = metrics(region).await;
            for metric in onceway::ports::observe::ALL {
                assert!(page.contains(&format!("# HELP {} ", metric.name)), "{} has no HELP", metric.name);
                assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{} has no TYPE", metric.name);
            }
            let status = status(region).await;
            let peers = status["peers"].as_object().unwrap();
            assert_eq!((peers.len(), &status["store"]["open"]), (2, &true.into()));
            for (name, peer) in peers {
                // An upper bound, which contains the round trip.
                let (lag, rtt) = (peer["lag_max_ms"].as_f64().unwrap(), peer["rtt_ms"].as_f64().unwrap());
                assert!(lag > 0.0 && rtt >= 20.0 && lag < 60_000.0, "{name}: {peer}");
            }
            for subscription in status["subscriptions"].as_array().unwrap() {
                assert!(subscription["ready"] == true && subscription["streaming"] == true, "{status}");
            }
            assert_eq!(ask(Ask::get(format!("{}/healthz", region.admin()))).await.status, 200);
            let ready = ask(Ask::get(format!("{}/readyz", region.admin()))).await;
            assert_eq!((ready.status.as_u16(), &ready.json()["serves"]), (200, &true.into()));
        }
    });
}

#[test]
fn no_output_leaks_keys_tokens_or_bodies() {
    run(async {
        let planted = [key("canary-key"), "sk_canary_token".to_owned(), "canary-body".to_owned()];
        let body = r#"{"amount":1,"note":"canary-body"}"#;
        for region in &three().await.regions {
            for behave in ["", "status=500", "drop-answer", "status=429", "hang"] {
                let request =
                    post(&region.public(), "/v1/payouts", &format!("{}-{}", planted[0], behave.len()), body);
                let answer = ask(request.with("Demo-Behave", behave)).await;
                assert!(!answer.text().contains(&planted[0]), "a key is in {}", answer.text());
            }
            let refused = Ask::post(format!("{}/v1/charges", region.public()), body)
                .with("Authorization", format!("Bearer {}", planted[1]))
                .with("Idempotency-Key", planted[0].clone());
            assert_eq!(ask(refused).await.status, 401);
            let admin = ask(Ask::get(format!("{}/v1/keys/acme/{}-0", region.admin(), planted[0]))).await;
            assert_eq!(admin.status, 200);
        }
        for region in &three().await.regions {
            let log = log(region).await;
            assert!(log.contains("answered"), "the log has no line per request");
            let postgres = region.gateway_log().with_file_name("postgres").join("postgres.log");
            let postgres = fs::read_to_string(postgres).unwrap();
            let texts = [log, postgres, metrics(region).await];
            for secret in &planted {
                assert!(texts.iter().all(|text| !text.contains(secret.as_str())), "{secret} leaked");
            }
            assert!(!texts[0].contains("sk_demo_acme"), "a token leaked");
        }
    });
}

/// The provider's ledger as a CSV file: one row for each effect of the tenant.
async fn ledger_csv(name: &str, change: impl FnOnce(&mut Vec<String>)) -> String {
    let totals = three().await.ledger.totals(None);
    let of = totals.iter().filter(|total| total.tenant == "globex");
    let mut rows: Vec<String> = of
        .flat_map(|total| (0..total.effects).map(|_| format!("ch,{},{},usd", total.key, total.tenant)))
        .collect();
    change(&mut rows);
    let path = three().await.dir().join(name);
    fs::write(&path, format!("id,Idempotency-Key,tenant,currency\n{}\n", rows.join("\n"))).unwrap();
    path.display().to_string()
}

async fn compared(region: usize, ledger: &str) -> (Option<i32>, Vec<(String, String)>, Value) {
    let args = ["audit", "compare", ledger, "--json", "--tenant", "globex"];
    let output = onceway(&three().await.regions[region], &args).await;
    let text = out(&output);
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap_or_default()["summary"].clone();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = lines.iter().map(|line| (word(&line["finding"]), word(&line["key"])));
    (output.status.code(), findings.collect(), summary)
}

#[test]
fn audit_compare_finds_the_doubles_of_a_ledger() {
    run(async {
        let word = key("reconciled");
        let names: Vec<String> = (0..6).map(|number| format!("{word}-{number}")).collect();
        let regions = &three().await.regions;
        let as_globex = |region: usize, path: &str, key: &str| {
            let url = format!("{}{path}", regions[region].public());
            Ask::post(url, BODY.to_owned())
                .with("Authorization", "Bearer sk_demo_globex")
                .with("Idempotency-Key", key)
        };
        for (number, name) in names.iter().enumerate() {
            assert_eq!(ask(as_globex(number % 3, "/v1/charges", name)).await.status, 201);
        }
        // Refused by the provider: settled, and no effect.
        let refused = format!("{word}-refused");
        let asked = as_globex(0, "/v1/charges", &refused).with("Demo-Behave", "status=402");
        assert_eq!(ask(asked).await.status, 402);
        // Only the provider knows the outcome.
        let doubtful = format!("{word}-doubtful");
        let asked = as_globex(1, "/v1/payouts", &doubtful).with("Demo-Behave", "drop-answer");
        assert_eq!(ask(asked).await.status, 504);

        // Rows replicate: in the end, each region shows all of them.
        for region in 0..3 {
            until("all rows to be in the export", async || {
                let output =
                    onceway(&three().await.regions[region], &["audit", "export", "--tenant", "globex"]).await;
                assert_eq!(output.status.code(), Some(0));
                let text = out(&output);
                let count = |state: &str| text.lines().filter(|line| line.contains(state)).count();
                count(",settled,201,") == 6 && count(",settled,402,") == 1 && count(",in-doubt,record,") == 1
            })
            .await;
        }
        let happened = ("happened".to_owned(), doubtful.clone());
        let clean = ledger_csv("clean.csv", |_| {}).await;
        for region in 0..3 {
            let (code, findings, summary) = compared(region, &clean).await;
            assert_eq!((code, &findings[..]), (Some(0), std::slice::from_ref(&happened)), "{summary}");
            assert_eq!((&summary["rows"], &summary["matched_rows"]), (&7.into(), &7.into()));
            assert_eq!(summary["copies"].as_array().unwrap().len(), 2);
        }
        let doubled =
            ledger_csv("doubled.csv", |rows| rows.push(format!("ch,{},globex,usd", names[4]))).await;
        let (code, findings, summary) = compared(1, &doubled).await;
        assert_eq!((code, &summary["differences"]), (Some(1), &1.into()), "{findings:?}");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!([happened, ("double".to_owned(), names[4].clone())].iter().all(|one| findings.contains(one)));
    });
}

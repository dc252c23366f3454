//! The routes' rules for keys and bodies, their published form, and the notice of bad clients,
//! through the public listener. One region serves all tests of this file: where habits are watched,
//! a test has a tenant of its own. The traps of JSON are in the simulation's `policies.rs`.

use crate::net::harness::talk;
use crate::support::solo::POLICY;
use crate::support::*;
use onceway::gateway::request::codes;

const PAGE: &str = "/.well-known/onceway/problems";

fn routes() -> String {
    let route = |name: &str, path: &str, rest: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\nmethods = [\"POST\"]\npath = \"/v1/{path}\"\nkey = \"required\"\nrecovery = \"park\"\n{rest}\n"
        )
    };
    let picky = "[route.key_policy]\nform = \"uuid\"\nentropy_bits = 32\n";
    let signed = "[route.fingerprint]\ninclude = [\"/amount\", \"/currency\"]\n";
    [
        route("plain", "charges", &format!("{POLICY}tombstone = \"60s\"")),
        route("picky", "emails", &format!("{POLICY}syntax = \"strict\"\nretention = \"never\"\n{picky}")),
        route("signed", "payouts", &format!("body_limit = \"16MiB\"\nmismatch = 409\n{signed}")),
        route("sdk", "sdk", "dialect = \"stripe\"\n[route.fingerprint]\nheaders = [\"Stripe-Account\"]"),
        "[[route]]\nname = \"notes\"\npath = \"/v1/notes\"\nkey = \"optional\"\nrecovery = \"park\"\n"
            .to_owned(),
        "[[route]]\nname = \"free\"\npath = \"/v1/free/*\"\nkey = \"off\"\n".to_owned(),
    ]
    .join("\n")
}

async fn solo() -> &'static Solo {
    static SOLO: OnceCell<Solo> = OnceCell::const_new();
    SOLO.get_or_init(|| async { Solo::start(&routes(), None).await }).await
}

async fn send(path: &str, key: &str, body: &str) -> Answer {
    ask(post(&solo().await.public(), path, key, body)).await
}

async fn get(path: &str) -> Answer {
    ask(Ask::get(format!("{}{path}", solo().await.public()))).await
}

async fn weak_keys(kind: &str) -> f64 {
    let name = format!("onceway_weak_keys_total{{route=\"plain\",tenant=\"globex\",kind=\"{kind}\"}}");
    // No series exists before its first weak key.
    series(&solo().await.region, &name).await.unwrap_or(0.0)
}

#[test]
fn keys_against_the_routes_rules_are_refused_with_advice() {
    run(async {
        for (key, expected, rule) in [
            ("\"order-1001\"", "key-malformed", "send a UUID"),
            ("\"00000000-0000-4000-8000-000000000001\"", "key-weak", "this route asks for 32"),
            ("7c9e6679-7425-40de-944b-e07fc1f90ae8", "key-malformed", "double quotes"),
        ] {
            let refused = send("/v1/emails", key, BODY).await;
            assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (400, expected), "{key}");
            let detail = refused.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(rule) && !detail.contains(key.trim_matches('"')), "{detail}");
            assert_eq!(effects(&solo().await.ledger, key.trim_matches('"')), 0);
        }
        let good = "\"7c9e6679-7425-40de-944b-e07fc1f90ae7\"";
        assert_eq!(send("/v1/emails", good, BODY).await.status, 201);
        assert_eq!(send("/v1/charges", &key("anything"), BODY).await.status, 201);
    });
}

#[test]
fn a_route_for_payment_sdks_refuses_as_they_expect() {
    run(async {
        let url = format!("{}/v1/sdk", solo().await.public());
        // The token as the user of `Basic`, as their documentation shows it.
        let missing = ask(Ask::post(&url, BODY).with("Authorization", "Basic c2tfZGVtb19hY21lOg==")).await;
        let said = |answer: &Answer| {
            let kind = answer.json()["error"]["type"].clone();
            (answer.status.as_u16(), kind, answer.header("stripe-should-retry").to_owned())
        };
        assert_eq!(said(&missing), (400, "invalid_request_error".into(), "false".to_owned()));
        // The sample upstream has nothing there, which is a final answer.
        let key = key("sdk");
        assert_eq!(send("/v1/sdk", &key, BODY).await.status, 404);
        let reused = send("/v1/sdk", &key, "{}").await;
        assert_eq!(said(&reused), (400, "idempotency_error".into(), "false".to_owned()));
        // A header that counts is part of what is asked.
        let (public, key) = (solo().await.public(), crate::support::key("account"));
        for (account, expected) in [("acct_1", 404), ("acct_1", 404), ("acct_2", 400)] {
            let request = post(&public, "/v1/sdk", &key, BODY).with("Stripe-Account", account);
            assert_eq!(ask(request).await.status.as_u16(), expected, "{account}");
        }
    });
}

#[test]
fn the_published_contract_states_each_routes_rules() {
    run(async {
        let answer = get("/.well-known/idempotency").await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
        assert!(answer.header("cache-control").contains("max-age="), "{:?}", answer.headers);
        let contract = answer.json();
        assert_eq!((&contract["version"], &contract["documentation"]), (&1.into(), &PAGE.into()));
        let routes = contract["routes"].as_array().unwrap();
        let of = |name: &str| routes.iter().find(|route| route["name"] == name).unwrap().clone();
        let policy = json!({"min_length": 1, "max_length": 255, "alphabet": "visible", "form": "uuid", "entropy_bits": 32});
        for (route, rule, is) in [
            ("plain", "/key", json!("required")),
            ("plain", "/path", json!("/v1/charges")),
            ("plain", "/methods", json!(["POST"])),
            ("plain", "/scope", json!(["tenant"])),
            ("free", "", json!({"name": "free", "methods": null, "path": "/v1/free/*", "key": "off"})),
            ("plain", "/header", json!({"name": "Idempotency-Key", "syntax": "lenient"})),
            ("notes", "/key", json!("optional")),
            ("picky", "/header/syntax", json!("strict")),
            ("picky", "/key_policy", policy),
            ("plain", "/fingerprint/body", json!("whole")),
            ("plain", "/fingerprint/fields", Value::Null),
            ("plain", "/replayed_to", json!("tenant")),
            ("signed", "/fingerprint/parts", json!(["method", "target", "body"])),
            ("signed", "/fingerprint/body", json!("include")),
            ("signed", "/fingerprint/fields", json!(["/amount", "/currency"])),
            ("plain", "/retention", json!(86_400)),
            ("plain", "/wait_seconds", json!(1.0)),
            ("plain", "/expired/status", json!(410)),
            ("plain", "/expired/code", json!("key-expired")),
            ("plain", "/expired/seconds", json!(60)),
            ("picky", "/retention", json!("never")),
            ("picky", "/expired", Value::Null),
            ("plain", "/statuses/released", json!(["401", "403", "421", "425", "429"])),
            ("plain", "/statuses/released_with_retry_after", json!(["503"])),
        ] {
            assert_eq!(of(route).pointer(rule).unwrap_or(&Value::Null), &is, "{route} {rule}");
        }
        let (plain, signed) = (of("plain"), of("signed"));
        assert!(!of("notes")["refusals"].to_string().contains("key-missing"));
        assert!(plain["statuses"]["unknown"].as_array().unwrap().contains(&"504-599".into()), "{plain}");
        for (route, wanted) in [(&plain, 422), (&signed, 409)] {
            let refusals = route["refusals"].as_array().unwrap();
            let status =
                |code: &str| refusals.iter().find(|one| one["code"] == code).map(|one| one["status"].clone());
            assert_eq!(status("key-reused"), Some(wanted.into()));
            assert_eq!((status("key-missing"), status("in-progress")), (Some(400.into()), Some(409.into())));
            for malformed in ["key-malformed", "key-empty", "key-too-long", "key-repeated"] {
                assert_eq!(status(malformed), Some(400.into()), "{malformed}");
            }
            assert_eq!(status("quota-exceeded"), None, "this gateway has none");
            assert_eq!(status("fingerprint-impossible").is_some(), wanted == 409);
        }
    });
}

#[test]
fn the_contract_is_read_only_and_holds_nothing_internal() {
    run(async {
        let answer = get("/.well-known/idempotency").await;
        let head = Ask::get(format!("{}/.well-known/idempotency", solo().await.public()));
        let head = ask(Ask { method: Method::HEAD, ..head }).await;
        let length = answer.header("content-length");
        assert_eq!((head.status.as_u16(), head.header("content-length")), (200, length));
        let written = send("/.well-known/idempotency", &key("written"), BODY).await;
        assert_eq!((written.status.as_u16(), code(&written).as_str()), (404, "no-route"));
        let ports = solo().await.region.ports;
        for internal in ["upstream", "recovery", "hold", "127.0.0.1", &ports.upstream.to_string(), "solo"] {
            assert!(!answer.text().contains(internal), "{internal}");
        }
        assert_eq!(answer.text().matches("#key-expired").count(), 8, "each documented");
    });
}

#[test]
fn every_problem_code_has_its_page_section() {
    run(async {
        let page = get(PAGE).await.text();
        let listeners = ["bad-request", "head-too-slow", "peer-forged"];
        let codes: BTreeSet<&str> = codes().chain(listeners).collect();
        assert!(codes.contains("key-weak") && codes.len() > 30, "{codes:?}");
        for code in codes {
            assert_eq!(page.matches(&format!("<h2 id=\"{code}\">")).count(), 1, "{code}");
        }
    });
}

#[test]
fn refusals_link_to_their_section_of_the_page() {
    run(async {
        let page = get(PAGE).await.text();
        let public = solo().await.public();
        let missing = ask(Ask::post(format!("{public}/v1/charges"), BODY)).await;
        assert_eq!(code(&ask(post(&public, "/v1/none", &key("none"), BODY)).await), "no-route");
        let credential =
            ask(Ask::post(format!("{public}/v1/charges"), BODY).with("Idempotency-Key", key("c"))).await;
        for refused in [missing, credential] {
            let link = refused.json()["documentation"].as_str().unwrap().to_owned();
            assert_eq!(refused.header("link"), format!("<{link}>; rel=\"describedby\""));
            assert!(page.contains(&format!("id=\"{}\"", link.split_once('#').unwrap().1)), "{link}");
        }
        // Also an answer that the listener itself refuses with.
        let address = public.trim_start_matches("http://");
        let text = talk(address, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").await;
        assert!(text.contains("\"documentation\":\"/.well-known/onceway/problems#bad-request\""), "{text}");
        let link = "link: </.well-known/onceway/problems#bad-request>";
        assert!(text.to_ascii_lowercase().contains(link), "{text}");
    });
}

#[test]
fn bad_key_habits_are_counted_and_logged_once() {
    run(async {
        let sent = |tenant: &'static str, path: &'static str, key: String, body: String| async move {
            let url = format!("{}{path}", solo().await.public());
            let request = Ask::post(url, body).with("Authorization", format!("Bearer sk_demo_{tenant}"));
            ask(request.with("Idempotency-Key", key)).await
        };
        let before = weak_keys("sequential").await;
        for number in 0..10 {
            sent("globex", "/v1/charges", format!("count-{number}"), BODY.to_owned()).await;
        }
        assert_eq!(weak_keys("sequential").await - before, 5.0, "from the sixth on");
        let one = key("one-for-many");
        let before = weak_keys("many_bodies").await;
        for amount in 0..5 {
            sent("globex", "/v1/charges", one.clone(), format!("{{\"amount\":{amount}}}")).await;
        }
        assert_eq!(weak_keys("many_bodies").await - before, 2.0, "from the third mismatch on");
        until("the log to say so, once for each kind", async || {
            let log = fs::read_to_string(solo().await.dir.join("gateway.log")).unwrap_or_default();
            let said = |kind: &str| {
                let parts = ["makes its idempotency keys badly", "globex", kind];
                log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
            };
            assert!(said("sequential") <= 1 && said("many_bodies") <= 1, "{log}");
            assert!(!log.contains(&one) && !log.contains("count-9"), "no key");
            said("sequential") == 1 && said("many_bodies") == 1
        })
        .await;
    });
}

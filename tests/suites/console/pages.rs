//! The console's pages over plain HTTP: access, headers, the effects of forms, and refusals.
//!
//! `tests/long/console.rs` looks at the same pages in a browser. Every request is one that a
//! browser could send, or a page that misuses one. A test must not send others.

use crate::console::{encoded, form};
use crate::support::console::{TOKEN, alone, doubt, retry, solo, start};
use crate::support::*;

pub async fn admin() -> String {
    solo().await.region.admin()
}

pub fn get(base: &str, path: &str) -> Ask {
    Ask::get(format!("{base}{path}"))
}

async fn session(base: &str) -> String {
    signed_in(base, TOKEN).await
}

/// The cookie of a session that a token begins.
pub async fn signed_in(base: &str, token: &str) -> String {
    let answer = ask(form(base, "/console/sign-in", &[("token", token)])).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, "/console"), "{}", answer.text());
    answer.header("set-cookie").split(';').next().unwrap().to_owned()
}

pub async fn page_of(base: &str, cookie: &str, key: &str) -> Answer {
    ask(get(base, &format!("/console/key?tenant=acme&key={}", encoded(key))).with("Cookie", cookie)).await
}

pub fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

async fn state(base: &str, key: &str) -> Value {
    let path = format!("/v1/keys/acme/{}", encoded(key));
    ask(get(base, &path).with("Authorization", format!("Bearer {TOKEN}"))).await.json()
}

#[test]
fn strangers_see_only_the_sign_in_under_the_policy() {
    run(async {
        let _alone = alone().await;
        let base = admin().await;
        let root = ask(get(&base, "/")).await;
        assert_eq!((root.status.as_u16(), root.header("location")), (303, "/console"));
        let cookie = session(&base).await;
        for path in
            ["/console", "/console/", "/console/now", "/console/audit", "/console/key?tenant=acme&key=a"]
        {
            let stranger = ask(get(&base, path)).await;
            assert_eq!(
                (stranger.status.as_u16(), stranger.header("www-authenticate")),
                (401, "Bearer"),
                "{path}"
            );
            assert!(stranger.text().contains("Admin token") && !stranger.text().contains("Ring"), "{path}");
            let known = ask(get(&base, path).with("Cookie", &cookie)).await;
            assert_eq!(known.status, 200, "{path}: {}", known.text());
            let by_token = ask(get(&base, path).with("Authorization", format!("Bearer {TOKEN}"))).await;
            assert_eq!(by_token.status, 200, "{path}");
            stranger_and_known_are_guarded(&[&stranger, &known]);
        }
        for file in ["console.css", "console.js", "icon.svg"] {
            let answer = ask(get(&base, &format!("/console/{file}"))).await;
            assert_eq!(answer.status, 200);
            stranger_and_known_are_guarded(&[&answer]);
        }
        assert_eq!(ask(get(&base, "/console/other").with("Cookie", &cookie)).await.status, 404);
        assert_eq!(
            ask(get(&base, "/v1/status").with("Cookie", &cookie)).await.status,
            401,
            "the API takes no cookie"
        );
    });
}

/// A region of its own, because nobody can sign in to it for a minute. About 4 s.
#[test]
fn ten_wrong_tokens_close_sign_in_for_a_minute() {
    run(async {
        // Starting a region beside one whose store is stopped would make that one late.
        let _alone = alone().await;
        let solo = start().await;
        let base = solo.region.admin();
        let cookie = session(&base).await;
        for number in 0..10 {
            let wrong = ask(form(&base, "/console/sign-in", &[("token", "letmein-letmein-letmeim")])).await;
            assert_eq!(wrong.status, 401, "{number}");
        }
        for token in ["letmein-letmein-letmeim", TOKEN] {
            let refused = ask(form(&base, "/console/sign-in", &[("token", token)])).await;
            assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (429, ""), "{token}");
            let after: u64 = refused.header("retry-after").parse().unwrap();
            assert!((1..=60).contains(&after) && refused.text().contains("Too many wrong tokens"), "{after}");
        }
        let log = log(&solo.region).await;
        assert_eq!(log.matches("could not sign in to the console").count(), 1, "{log}");
        // A signed-in user stays signed in, and programs are asked for the token as before.
        assert_eq!(ask(get(&base, "/console").with("Cookie", &cookie)).await.status, 200);
        let by_token = get(&base, "/v1/status").with("Authorization", format!("Bearer {TOKEN}"));
        assert_eq!(ask(by_token).await.status, 200);
    });
}

fn stranger_and_known_are_guarded(answers: &[&Answer]) {
    for answer in answers {
        let policy = answer.header("content-security-policy");
        for part in [
            "default-src 'none'; ",
            "script-src 'self'; ",
            "style-src 'self'; ",
            "form-action 'self'; ",
            "base-uri 'none'; ",
            "frame-ancestors 'none'; ",
        ] {
            assert!(policy.contains(part), "{part} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), value, "{name}");
        }
        let text = answer.text();
        for inline in [" style=", "<style", " onclick=", "javascript:", "<script>", "http://", "https://"] {
            let own = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(inline), "{inline} in {text}");
        }
    }
}

#[test]
fn foreign_pages_cannot_use_a_session() {
    run(async {
        let base = admin().await;
        let wrong = ask(form(&base, "/console/sign-in", &[("token", "letmein-letmein-letmeim")])).await;
        assert_eq!((wrong.status.as_u16(), wrong.header("set-cookie")), (401, ""));
        assert!(wrong.text().contains("not the admin token"));
        let right = ask(form(&base, "/console/sign-in", &[("token", TOKEN)])).await;
        let cookie = right.header("set-cookie");
        assert!(cookie.ends_with("HttpOnly; SameSite=Strict") && !cookie.contains(TOKEN), "{cookie}");
        let front = base.replacen("http://", "https://", 1);
        let mut over_tls = form(&base, "/console/sign-in", &[("token", TOKEN)]);
        over_tls.headers.retain(|(name, _)| name != "Origin");
        let over_tls = ask(over_tls.with("Origin", front)).await;
        assert!(over_tls.header("set-cookie").ends_with("; SameSite=Strict; Secure"), "{}", over_tls.text());
        let stolen_origin = |origin: &str| {
            let mut ask = form(&base, "/console/sign-in", &[("token", TOKEN)]);
            ask.headers.retain(|(name, _)| name != "Origin");
            if origin.is_empty() { ask } else { ask.with("Origin", origin) }
        };
        for origin in ["", "null", "http://evil.example", "http://127.0.0.1:1"] {
            let refused = ask(stolen_origin(origin)).await;
            assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (403, ""), "{origin}");
        }
        let json = Ask::post(format!("{base}/console/sign-in"), "{}").with("Origin", &base);
        assert_eq!(ask(json).await.status, 415);
        let cookie = cookie.split(';').next().unwrap();
        let out = ask(form(&base, "/console/sign-out", &[]).with("Cookie", cookie)).await;
        assert_eq!(out.status, 303);
        assert!(out.header("set-cookie").contains("Max-Age=0"), "{}", out.header("set-cookie"));
        let large = "x".repeat(300 << 10);
        assert_eq!(ask(form(&base, "/console/sign-in", &[("token", &large)])).await.status, 413);
    });
}

#[test]
fn settling_a_key_needs_a_reason_and_a_confirmation() {
    run(async {
        let _alone = alone().await;
        let (base, public) = (admin().await, solo().await.public());
        let (key, cookie) = (key("settled"), session(&base).await);
        doubt(&public, &key).await;
        let queue = ask(get(&base, "/console").with("Cookie", &cookie)).await.text();
        assert!(queue.contains(&key) && queue.contains("in doubt"), "{queue}");
        let page = page_of(&base, &cookie, &key).await.text();
        let seen = hidden(&page, "seen");
        let all = [
            ("tenant", "acme"),
            ("key", &key),
            ("seen", &seen),
            ("status", "201"),
            ("headers", "content-type: text/plain\r\n"),
            ("body", "po_17\r\n"),
            ("reason", "the provider shows po_17"),
            ("actor", "ann"),
        ];
        let with = |name: &str, value: &'static str| -> Vec<(&str, &str)> {
            let rest = all.iter().filter(|(known, _)| *known != name).copied();
            rest.chain([(
                all.iter().find(|(known, _)| *known == name).map_or("confirmed", |found| found.0),
                value,
            )])
            .collect()
        };
        let send = async |fields: &[(&str, &str)]| {
            ask(form(&base, "/console/settle", fields).with("Cookie", &cookie)).await
        };
        let confirmed = [&all[..], &[("confirmed", "yes")]].concat();
        // Nothing is done without a reason, a name, a status, a second look or a session, or from
        // another page's form.
        for (name, value) in
            [("reason", " "), ("actor", ""), ("status", "99"), ("status", ""), ("headers", "x")]
        {
            let fields = [&with(name, value)[..], &[("confirmed", "yes")]].concat();
            let refused = send(&fields).await;
            assert_eq!(refused.status, 400, "{name} = {value:?}: {}", refused.text());
            assert!(refused.text().contains("Nothing was done"));
        }
        let stale = [&with("seen", "solo#1 1.0 claimed")[..], &[("confirmed", "yes")]].concat();
        assert_eq!(send(&stale).await.status, 409);
        let looked = send(&all).await;
        assert!(looked.status == 200 && looked.text().contains("Settle this key?"), "{}", looked.text());
        assert_eq!(ask(form(&base, "/console/settle", &confirmed)).await.status, 401);
        let mut foreign = form(&base, "/console/settle", &confirmed).with("Cookie", &cookie);
        foreign.headers.retain(|(name, _)| name != "Origin");
        let foreign = foreign.with("Origin", "http://127.0.0.1:3000").with("Sec-Fetch-Site", "same-site");
        assert_eq!(ask(foreign).await.status, 403);
        assert_eq!(state(&base, &key).await["state"], "in-doubt");

        let done = send(&confirmed).await;
        assert_eq!(done.status, 303, "{}", done.text());
        let after = ask(get(&base, done.header("location")).with("Cookie", &cookie)).await.text();
        assert!(
            after.contains("settled: every retry is given this answer")
                && after.contains("the provider shows po_17")
        );
        assert!(!after.contains("<form class=\"act\""), "there is nothing left to decide");
        let answer = retry(&public, &key).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (201, "po_17\n".to_owned()));
        assert_eq!(answer.header("content-type"), "text/plain");
        assert!(!ask(get(&base, "/console").with("Cookie", &cookie)).await.text().contains(&key));
        assert_eq!(send(&confirmed).await.status, 409, "once");
    });
}

#[test]
fn the_list_filters_keys_and_pages_them() {
    run(async {
        let _alone = alone().await;
        let (base, public) = (admin().await, solo().await.public());
        let (one, two) = (key("found"), key("found"));
        for key in [&one, &two] {
            doubt(&public, key).await;
        }
        let find = async |query: &str| {
            let path = format!("/v1/keys?tenant=acme&route=payouts&{query}");
            ask(get(&base, &path).with("Authorization", format!("Bearer {TOKEN}"))).await
        };
        let keys = |page: &Value| -> Vec<String> {
            let all = page["keys"].as_array().unwrap().iter();
            all.map(|found| found["key"].as_str().unwrap().to_owned()).collect()
        };
        // One key a page, until both were shown: an entry for each, and an end.
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = find(&format!("state=in-doubt&limit=1{after}")).await.json();
            seen.extend(keys(&page));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={}", encoded(next));
        }
        let of = |key: &String| seen.iter().filter(|found| *found == key).count();
        assert_eq!((of(&one), of(&two)), (1, 1), "{seen:?}");
        assert!(!keys(&find("state=settled").await.json()).contains(&one));
        assert!(keys(&find("from=2999-01-01").await.json()).is_empty());
        assert!(!keys(&find("before=2999-01-01").await.json()).is_empty());
        let other = find("state=in-doubt&after=aaa%2Fk").await.json();
        assert!(keys(&other).contains(&one), "a cursor of another tenant hides nothing: {other}");
        assert_eq!(find("state=lost").await.status, 400);
        let cookie = session(&base).await;
        let shown = async |path: &str| ask(get(&base, path).with("Cookie", &cookie)).await;
        let page = shown("/console/keys?tenant=acme&state=in-doubt&from=2026-01-01&before=").await;
        assert!(page.status == 200 && page.text().contains(&one), "{}", page.text());
        assert_eq!(shown("/console/keys?from=yesterday").await.status, 400);
        assert!(shown("/console/keys?tenant=nobody").await.text().contains("No key fits."));
    });
}

#[test]
fn a_released_key_reruns_and_foreign_text_is_escaped() {
    run(async {
        let _alone = alone().await;
        let (base, public) = (admin().await, solo().await.public());
        let cookie = session(&base).await;
        let key = format!("<script>alert(1)</script>&'{}", key("evil"));
        doubt(&public, &key).await;
        let queue = ask(get(&base, "/console").with("Cookie", &cookie)).await.text();
        let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&amp;";
        assert!(queue.contains(shown) && !queue.contains("<script>"), "{queue}");
        let page = page_of(&base, &cookie, &key).await.text();
        assert!(page.contains(shown) && !page.contains("<script>"), "{page}");
        let seen = hidden(&page, "seen");
        let reason = "\"><img src=x onerror=alert(1)>";
        let fields =
            [("tenant", "acme"), ("key", &key), ("seen", &seen), ("reason", reason), ("actor", "<b>ann</b>")];
        let looked = ask(form(&base, "/console/release", &fields).with("Cookie", &cookie)).await.text();
        assert!(
            looked.contains("Release this key?") && !looked.contains("<img") && !looked.contains("<b>"),
            "{looked}"
        );
        let fields = [&fields[..], &[("confirmed", "yes")]].concat();
        let done = ask(form(&base, "/console/release", &fields).with("Cookie", &cookie)).await;
        assert_eq!(done.status, 303, "{}", done.text());
        let after = ask(get(&base, done.header("location")).with("Cookie", &cookie)).await.text();
        assert!(after.contains("released: nothing was sent") && after.contains("&lt;img"), "{after}");
        assert!(!after.contains("<img") && !after.contains("<b>ann"), "{after}");
        assert_eq!(retry(&public, &key).await.status, 201);
        let odd = ask(get(&base, "/console/key?tenant=%3Cb%3E&key=x").with("Cookie", &cookie)).await;
        assert!(odd.status == 400 && !odd.text().contains("<b>"), "{}", odd.text());
    });
}

#[test]
fn lists_come_in_pages() {
    run(async {
        let _alone = alone().await;
        let (base, public) = (admin().await, solo().await.public());
        let cookie = session(&base).await;
        let word = key("page");
        let mut asking = JoinSet::new();
        for number in 0..52 {
            let (public, key) = (public.clone(), format!("{word}-{number:02}"));
            asking.spawn(async move { doubt(&public, &key).await });
        }
        asking.join_all().await;
        let first = ask(get(&base, "/console").with("Cookie", &cookie)).await.text();
        let count = |page: &str| page.matches("href=\"/console/key?tenant=acme&amp;key=").count() / 3;
        assert_eq!(count(&first), 50, "a row has three links");
        let (_, rest) = first.split_once("href=\"/console?doubts=").expect("a next page");
        let next = rest.split('#').next().unwrap();
        let second = ask(get(&base, &format!("/console?doubts={next}")).with("Cookie", &cookie)).await.text();
        assert!((2..50).contains(&count(&second)), "{}", count(&second));
        assert!(second.contains("First page") && second.contains(&format!("{word}-51")));
        let mut acting = JoinSet::new();
        for number in 0..52 {
            let path = format!("/v1/keys/acme/{word}-{number:02}/release");
            let why = r#"{"reason":"the test is over","actor":"ann"}"#;
            let act =
                Ask::post(format!("{base}{path}"), why).with("Authorization", format!("Bearer {TOKEN}"));
            acting.spawn(async move { ask(act).await.status });
        }
        assert!(acting.join_all().await.iter().all(|status| *status == 200));
    });
}

#[test]
fn a_silent_store_leaves_the_rest_of_the_page() {
    run(async {
        let _alone = alone().await;
        let (base, cookie) = (admin().await, session(&admin().await).await);
        solo().await.region.act(Action::Pause, Part::Postgres).await.unwrap();
        let page = ask(get(&base, "/console").with("Cookie", &cookie)).await;
        let key = page_of(&base, &cookie, "order-1").await;
        solo().await.region.act(Action::Resume, Part::Postgres).await.unwrap();
        assert_eq!((page.status.as_u16(), key.status.as_u16()), (200, 503));
        let page = page.text();
        for part in ["The store does not answer", "Arcs owned now", "Look a key up", "Leases"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(key.text().contains("The store does not answer"), "{}", key.text());
        // The lease from before the pause may end while others go on. The test waits for one that
        // was renewed since.
        let left = async || {
            let status = get(&base, "/v1/status").with("Authorization", format!("Bearer {TOKEN}"));
            ask(status).await.json()["authority"]["lease"]["left_ms"].as_u64()
        };
        let before = left().await;
        until("the lease to be renewed", async || left().await > before).await;
        solo().await.serves().await;
    });
}

//! The console's pages over plain HTTP: access, headers, the effects of forms, and refusals.
//!
//! `tests/long/console.rs` looks at the same pages in a browser. Every request is one that a
//! browser could send, or a page that misuses one.

use crate::console::{Desk, encoded, form, hidden, state, told};
use crate::support::solo::{TOKEN, alone, doubt, retry, solo, start};
use crate::support::*;

pub async fn admin() -> String {
    solo().await.region.admin()
}

/// Runs a test alone at the region: its admin listener, its public one, and a session there.
fn there(test: impl AsyncFnOnce(&str, &str, Desk)) {
    run(async {
        let _alone = alone().await;
        let base = admin().await;
        let desk = Desk::open(&base, TOKEN).await;
        test(&base, &solo().await.public(), desk).await;
    });
}

async fn open(base: &str, path: &str) -> Answer {
    ask(Ask::get(format!("{base}{path}"))).await
}

#[test]
fn strangers_see_only_the_sign_in_under_the_policy() {
    there(async |base, _, desk| {
        let root = open(base, "/").await;
        assert_eq!((root.status.as_u16(), root.header("location")), (303, "/console"));
        for path in
            ["/console", "/console/", "/console/now", "/console/audit", "/console/key?tenant=acme&key=a"]
        {
            let stranger = open(base, path).await;
            let asked = (stranger.status.as_u16(), stranger.header("www-authenticate"));
            assert_eq!(asked, (401, "Bearer"), "{path}");
            assert!(stranger.text().contains("Admin token") && !stranger.text().contains("Ring"), "{path}");
            let known = desk.page(path).await;
            assert_eq!(known.status, 200, "{path}: {}", known.text());
            assert_eq!(told(base, TOKEN, path).await.status, 200, "{path}");
            [stranger, known].iter().for_each(is_guarded);
        }
        for file in ["console.css", "console.js", "icon.svg"] {
            let answer = open(base, &format!("/console/{file}")).await;
            assert_eq!(answer.status, 200);
            is_guarded(&answer);
        }
        assert_eq!(desk.page("/console/other").await.status, 404);
        assert_eq!(desk.page("/v1/status").await.status, 401, "the API takes no cookie");
    });
}

/// A region of its own, because nobody can sign in to it for a minute. About 4 s.
#[tokio::test(flavor = "multi_thread")]
async fn ten_wrong_tokens_close_sign_in_for_a_minute() {
    // Starting a region beside one whose store is stopped would make that one late.
    let _alone = alone().await;
    let solo = start().await;
    let base = solo.region.admin();
    let desk = Desk::open(&base, TOKEN).await;
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
    assert_eq!(desk.page("/console").await.status, 200);
    assert_eq!(told(&base, TOKEN, "/v1/status").await.status, 200);
}

fn is_guarded(answer: &Answer) {
    let policy = answer.header("content-security-policy");
    for (source, directives) in [
        ("'self'", ["script-src", "style-src", "form-action"]),
        ("'none'", ["default-src", "base-uri", "frame-ancestors"]),
    ] {
        for part in directives.map(|directive| format!("{directive} {source}; ")) {
            assert!(policy.contains(&part), "{part} in {policy}");
        }
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
    let own = answer.text().replace("http://www.w3.org/2000/svg", "");
    for inline in [" style=", "<style", " onclick=", "javascript:", "<script>", "http://", "https://"] {
        assert!(!own.contains(inline), "{inline} in {own}");
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
        let from = async |origin: &str| {
            let mut form = form(&base, "/console/sign-in", &[("token", TOKEN)]);
            form.headers.retain(|(name, _)| name != "Origin");
            ask(if origin.is_empty() { form } else { form.with("Origin", origin) }).await
        };
        let over_tls = from(&base.replacen("http://", "https://", 1)).await;
        assert!(over_tls.header("set-cookie").ends_with("; SameSite=Strict; Secure"), "{}", over_tls.text());
        for origin in ["", "null", "http://evil.example", "http://127.0.0.1:1"] {
            let refused = from(origin).await;
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
    there(async |base, public, desk| {
        let key = key("settled");
        doubt(public, &key).await;
        let queue = desk.page("/console").await.text();
        assert!(queue.contains(&key) && queue.contains("in doubt"), "{queue}");
        let page = desk.key(&key).await.text();
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
        let confirmed = [&all[..], &[("confirmed", "yes")]].concat();
        let with = |name: &str, value: &'static str| -> Vec<(&str, &str)> {
            let all = confirmed.iter();
            all.map(|(known, old)| (*known, if *known == name { value } else { *old })).collect()
        };
        let send = async |fields: &[(&str, &str)]| desk.send("/console/settle", fields).await;
        // Nothing is done without a reason, a name, a status, a second look or a session, or from
        // another page's form.
        for (name, value) in
            [("reason", " "), ("actor", ""), ("status", "99"), ("status", ""), ("headers", "x")]
        {
            let refused = send(&with(name, value)).await;
            assert_eq!(refused.status, 400, "{name} = {value:?}: {}", refused.text());
            assert!(refused.text().contains("Nothing was done"));
        }
        assert_eq!(send(&with("seen", "solo#1 1.0 claimed")).await.status, 409);
        let looked = send(&all).await;
        assert!(looked.status == 200 && looked.text().contains("Settle this key?"), "{}", looked.text());
        assert_eq!(ask(form(base, "/console/settle", &confirmed)).await.status, 401);
        let mut foreign = form(base, "/console/settle", &confirmed).with("Cookie", &desk.cookie);
        foreign.headers.retain(|(name, _)| name != "Origin");
        let foreign = foreign.with("Origin", "http://127.0.0.1:3000").with("Sec-Fetch-Site", "same-site");
        assert_eq!(ask(foreign).await.status, 403);
        assert_eq!(state(base, TOKEN, &key).await["state"], "in-doubt");

        let done = send(&confirmed).await;
        assert_eq!(done.status, 303, "{}", done.text());
        let after = desk.page(done.header("location")).await.text();
        has(&after, &["settled: every retry is given this answer", "the provider shows po_17"]);
        assert!(!after.contains("<form class=\"act\""), "there is nothing left to decide");
        let answer = retry(public, &key).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (201, "po_17\n".to_owned()));
        assert_eq!(answer.header("content-type"), "text/plain");
        assert!(!desk.page("/console").await.text().contains(&key));
        assert_eq!(send(&confirmed).await.status, 409, "once");
    });
}

#[test]
fn the_list_filters_keys_and_pages_them() {
    there(async |base, public, desk| {
        let (one, two) = (key("found"), key("found"));
        for key in [&one, &two] {
            doubt(public, key).await;
        }
        let find = async |query: &str| {
            told(base, TOKEN, &format!("/v1/keys?tenant=acme&route=payouts&{query}")).await
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
        let page = desk.page("/console/keys?tenant=acme&state=in-doubt&from=2026-01-01&before=").await;
        assert!(page.status == 200 && page.text().contains(&one), "{}", page.text());
        assert_eq!(desk.page("/console/keys?from=yesterday").await.status, 400);
        assert!(desk.page("/console/keys?tenant=nobody").await.text().contains("No key fits."));
    });
}

#[test]
fn a_released_key_reruns_and_foreign_text_is_escaped() {
    there(async |_, public, desk| {
        let key = format!("<script>alert(1)</script>&'{}", key("evil"));
        doubt(public, &key).await;
        let queue = desk.page("/console").await.text();
        let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&amp;";
        assert!(queue.contains(shown) && !queue.contains("<script>"), "{queue}");
        let page = desk.key(&key).await.text();
        assert!(page.contains(shown) && !page.contains("<script>"), "{page}");
        let seen = hidden(&page, "seen");
        let reason = "\"><img src=x onerror=alert(1)>";
        let fields =
            [("tenant", "acme"), ("key", &key), ("seen", &seen), ("reason", reason), ("actor", "<b>ann</b>")];
        let looked = desk.send("/console/release", &fields).await.text();
        assert!(looked.contains("Release this key?"), "{looked}");
        assert!(!looked.contains("<img") && !looked.contains("<b>"), "{looked}");
        let fields = [&fields[..], &[("confirmed", "yes")]].concat();
        let done = desk.send("/console/release", &fields).await;
        assert_eq!(done.status, 303, "{}", done.text());
        let after = desk.page(done.header("location")).await.text();
        assert!(after.contains("released: nothing was sent") && after.contains("&lt;img"), "{after}");
        assert!(!after.contains("<img") && !after.contains("<b>ann"), "{after}");
        assert_eq!(retry(public, &key).await.status, 201);
        let odd = desk.page("/console/key?tenant=%3Cb%3E&key=x").await;
        assert!(odd.status == 400 && !odd.text().contains("<b>"), "{}", odd.text());
    });
}

#[test]
fn lists_come_in_pages() {
    there(async |base, public, desk| {
        let word = key("page");
        let mut asking = JoinSet::new();
        for number in 0..52 {
            let (public, key) = (public.to_owned(), format!("{word}-{number:02}"));
            asking.spawn(async move { doubt(&public, &key).await });
        }
        asking.join_all().await;
        let first = desk.page("/console").await.text();
        let count = |page: &str| page.matches("href=\"/console/key?tenant=acme&amp;key=").count() / 3;
        assert_eq!(count(&first), 50, "a row has three links");
        let (_, rest) = first.split_once("href=\"/console?doubts=").expect("a next page");
        let next = rest.split('#').next().unwrap();
        let second = desk.page(&format!("/console?doubts={next}")).await.text();
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
    there(async |base, _, desk| {
        solo().await.region.act(Action::Pause, Part::Postgres).await.unwrap();
        let page = desk.page("/console").await;
        let key = desk.key("order-1").await;
        solo().await.region.act(Action::Resume, Part::Postgres).await.unwrap();
        assert_eq!((page.status.as_u16(), key.status.as_u16()), (200, 503));
        let page = page.text();
        has(&page, &["The store does not answer", "Arcs owned now", "Look a key up", "Leases"]);
        assert!(key.text().contains("The store does not answer"), "{}", key.text());
        // The lease from before the pause may end while others go on: wait for a renewed one.
        let left =
            async || told(base, TOKEN, "/v1/status").await.json()["authority"]["lease"]["left_ms"].as_u64();
        let before = left().await;
        until("the lease to be renewed", async || left().await > before).await;
        solo().await.serves().await;
    });
}

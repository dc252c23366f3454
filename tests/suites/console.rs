//! The console as its users meet it: over plain HTTP (`pages`), and in a real headless Chromium
//! (`seen`).
//!
//! The server's own tests compare each file with its text. If Chromium is not installed, the tests
//! of `seen` say so on stderr; with ONCEWAY_TOOLS=all, as `.ci/run` sets it, they fail.
//! Screenshots: docs/testing.md. It must not reach behind the admin listener.

mod browser;
mod pages;
mod seen;
use std::fs;

use crate::support::solo::{Solo, routes};
use crate::support::{BODY, ask, post};
use onceway::fleet::client::{Answer, Ask};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The token of [`solo`]'s admin listener.
const TOKEN: &str = "letmein-letmein-letmein";

/// A region alone whose admin listener asks for a token. All tests of this process share it.
async fn solo() -> &'static Solo {
    static SOLO: OnceCell<Solo> = OnceCell::const_new();
    SOLO.get_or_init(start).await
}

/// Starts such a region.
async fn start() -> Solo {
    let settle = "settle_time = \"0s\"\n";
    let routes = routes().replace(settle, &format!("{settle}status_ends_attempt = true\n"));
    Solo::start_with(&routes, None, |dir| {
        fs::write(dir.join("token"), TOKEN).unwrap();
        let file = dir.join("solo.toml");
        fs::write(&file, fs::read_to_string(&file).unwrap() + "\n[admin]\ntoken_file = \"token\"\n").unwrap();
    })
    .await
}

/// The lock of tests that look at all keys of [`solo`] or stop its store, and of tests that such a
/// test would disturb.
async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}

/// Makes a key in doubt whose attempt is over: its upstream answered with a status that says
/// nothing.
async fn doubt(public: &str, key: &str) -> Answer {
    let request = post(public, "/v1/payouts", &format!("\"{key}\""), BODY).with("Demo-Behave", "status=500");
    let answer = ask(request).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    answer
}

/// A client's retry.
async fn retry(public: &str, key: &str) -> Answer {
    ask(post(public, "/v1/payouts", &format!("\"{key}\""), BODY)).await
}

/// Encodes a value for a query or a form.
fn encoded(text: &str) -> String {
    onceway::gateway::percent::encode(text)
}

/// A request as a browser sends a form of the page at `base`.
fn form(base: &str, path: &str, fields: &[(&str, &str)]) -> Ask {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let mut ask = Ask::post(format!("{base}{path}"), pairs.join("&"));
    ask.headers = vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
    ask.with("Origin", base)
}

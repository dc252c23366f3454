//! A region whose console asks for a token, for the suites that look at the console over plain HTTP
//! (`tests/suites/console.rs`) and in a browser (`tests/long/console.rs`).

use super::solo::{add_lines, routes};
use super::*;
use tokio::sync::{Mutex, MutexGuard};

/// The token of [`solo`]'s admin listener.
pub const TOKEN: &str = "letmein-letmein-letmein";
/// The token of ann, who may approve.
pub const ANN: &str = "ann-ann-ann-ann-ann";
/// The token of bob, who may act.
pub const BOB: &str = "bob-bob-bob-bob-bob";
/// The token of eve, who may only look.
pub const EVE: &str = "eve-eve-eve-eve-eve";

/// A region alone whose admin listener asks for a token. All tests of this process share it.
pub async fn solo() -> &'static Solo {
    static SOLO: OnceCell<Solo> = OnceCell::const_new();
    SOLO.get_or_init(start).await
}

pub async fn start() -> Solo {
    let settle = "settle_time = \"0s\"\n";
    let routes = routes().replace(settle, &format!("{settle}status_ends_attempt = true\n"));
    Solo::start_with(&routes, None, |dir| {
        fs::write(dir.join("token"), TOKEN).unwrap();
        let named = [("ann", "approve", ANN), ("bob", "act", BOB), ("eve", "look", EVE)];
        let named = named.map(|(name, role, token)| operator(name, role, token)).concat();
        fs::write(dir.join("operators.toml"), named).unwrap();
        add_lines(dir, "[admin]\ntoken_file = \"token\"\noperators = \"operators.toml\"\n");
    })
    .await
}

/// The lock of tests that look at all keys of [`solo`] or stop its store, and of the disturbed.
pub async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}

/// Makes a key in doubt whose attempt is over: its upstream's status said nothing.
pub async fn doubt(public: &str, key: &str) -> Answer {
    let request = post(public, "/v1/payouts", &format!("\"{key}\""), BODY).with("Demo-Behave", "status=500");
    let answer = ask(request).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    answer
}

pub async fn retry(public: &str, key: &str) -> Answer {
    ask(post(public, "/v1/payouts", &format!("\"{key}\""), BODY)).await
}

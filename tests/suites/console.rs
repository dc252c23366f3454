//! The console as its users meet it, over plain HTTP.
//!
//! The server's own tests compare each file with its text, and `tests/long/console.rs` looks at it
//! in a real headless Chromium. It must not reach behind the admin listener.

mod named;
pub mod pages;

use onceway_client::Ask;

fn encoded(text: &str) -> String {
    onceway::gateway::operator::percent::encode(text)
}

/// A request as a browser sends a form of the page at `base`.
pub fn form(base: &str, path: &str, fields: &[(&str, &str)]) -> Ask {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let mut ask = Ask::post(format!("{base}{path}"), pairs.join("&"));
    ask.headers = vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
    ask.with("Origin", base)
}

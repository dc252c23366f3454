//! The console as its users meet it, over plain HTTP.
//!
//! The server's own tests compare each file with its text, and `tests/long/console.rs` looks at it
//! in a real headless Chromium.

mod named;
mod pages;

use crate::support::{Answer, Ask, Value, ask};

pub use onceway::gateway::operator::percent::encode as encoded;

/// A request as a browser sends a form of the page at `base`.
pub fn form(base: &str, path: &str, fields: &[(&str, &str)]) -> Ask {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    let mut ask = Ask::post(format!("{base}{path}"), pairs.join("&"));
    ask.headers = vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
    ask.with("Origin", base)
}

/// The answer of the admin API to a GET by the owner of this token.
async fn told(base: &str, token: &str, path: &str) -> Answer {
    ask(Ask::get(format!("{base}{path}")).with("Authorization", format!("Bearer {token}"))).await
}

async fn state(base: &str, token: &str, key: &str) -> Value {
    told(base, token, &format!("/v1/keys/acme/{}", encoded(key))).await.json()
}

pub struct Desk {
    base: String,
    cookie: String,
}

impl Desk {
    pub async fn open(base: &str, token: &str) -> Self {
        let answer = ask(form(base, "/console/sign-in", &[("token", token)])).await;
        let found = (answer.status.as_u16(), answer.header("location"));
        assert_eq!(found, (303, "/console"), "{}", answer.text());
        let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
        Self { base: base.to_owned(), cookie }
    }

    pub async fn page(&self, path: &str) -> Answer {
        ask(Ask::get(format!("{}{path}", self.base)).with("Cookie", &self.cookie)).await
    }

    pub async fn key(&self, key: &str) -> Answer {
        self.page(&format!("/console/key?tenant=acme&key={}", encoded(key))).await
    }

    pub async fn send(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        ask(form(&self.base, path, fields).with("Cookie", &self.cookie)).await
    }
}

pub fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

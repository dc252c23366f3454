//! The edges of the owner's promises: acts of a client, an upstream or an operator that the main
//! path never sees.
//!
//! One region alone serves all tests of this file; its charges have a `settle_time`, unlike those
//! of `request_path`. A test must not reuse a key of another one.

use crate::support::solo::{POLICY, Solo};
use crate::support::{BODY, PATIENCE, ask, code, effects, key, post, run, until};
use onceway::fleet::client::{Answer, Ask};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

async fn solo() -> &'static Solo {
    static SOLO: OnceCell<Solo> = OnceCell::const_new();
    SOLO.get_or_init(|| async { Solo::start(&routes(), None).await }).await
}

fn routes() -> String {
    let late = POLICY.replace("settle_time = \"0s\"", "settle_time = \"1s\"");
    format!(
        "[[route]]\nname = \"charges\"\nmethods = [\"POST\"]\npath = \"/v1/charges\"\nkey = \"required\"\n{late}\
         recovery = \"probe\"\nprobe = \"/onceway/effects\"\n\n\
         [[route]]\nname = \"notes\"\nmethods = [\"POST\"]\npath = \"/v1/notes\"\nkey = \"optional\"\n{POLICY}recovery = \"park\"\n"
    )
}

async fn charge(key: &str, behave: &str) -> Answer {
    let request = post(&solo().await.public(), "/v1/charges", key, BODY);
    ask(if behave.is_empty() { request } else { request.with("Demo-Behave", behave) }).await
}

async fn count(key: &str) -> u64 {
    effects(&solo().await.ledger, key)
}

#[test]
fn a_probe_that_says_no_counts_once_hold_and_settle_time_are_over() {
    run(async {
        let key = key("settle-time");
        let lost = charge(&key, "hang").await;
        assert_eq!((lost.status.as_u16(), code(&lost).as_str()), (504, "outcome-unknown"));
        until("the attempt to be over and the key to run again", async || {
            charge(&key, "").await.status == 201
        })
        .await;
        assert_eq!(count(&key).await, 1);
    });
}

#[test]
fn an_unkeyed_request_that_broke_after_sending_is_not_called_unsent() {
    run(async {
        let before = count_all().await;
        let url = format!("{}/v1/notes", solo().await.public());
        let broken = ask(Ask::post(url, BODY).with("Demo-Behave", "drop-answer")).await;
        assert_eq!(count_all().await, before + 1, "the effect happened");
        assert!(!broken.text().contains("Nothing was sent"), "{}", broken.text());
        assert_eq!(broken.json()["safe_to_retry"], false, "{}", broken.text());
        assert_eq!(broken.header("retry-after"), "", "nobody is invited to do it twice");
    });
}

async fn count_all() -> u64 {
    solo().await.ledger.totals(None).iter().map(|total| total.effects).sum()
}

#[test]
fn a_method_in_other_letters_does_not_slip_past_the_key() {
    run(async {
        let address = solo().await.public().trim_start_matches("http://").to_owned();
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "post /v1/charges HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("no-route"), "{answer}");
    });
}

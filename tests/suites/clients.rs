//! The SDKs of a payment API, through a real gateway: a lost answer is retried and replayed, and a
//! refusal throws. Needs PyPI, npm and Node. `tests/long/clients.rs` has other clients and cases.

use crate::support::clients::{Case, Clients};
use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn sdks_retry_lost_answers_and_throw_on_refusals() {
    let install = tokio::task::spawn_blocking(Clients::install);
    let policy = "key = \"required\"\nhold = \"12s\"\nwait = \"0s\"\nupstream_timeout = \"6s\"\n\
        recovery = \"probe\"\nprobe = \"/onceway/effects\"\ndialect = \"stripe\"";
    let solo = Solo::start(&route("charges", policy), None).await;
    let clients = match install.await.unwrap() {
        Ok(clients) => clients,
        Err(why) => return not_checked(&format!("the SDKs of the registries: {why}")),
    };
    for client in ["stripe (Python)", "stripe (Node)"] {
        let lost = Case { behave: Some("drop-answer"), ..Case::new(4) };
        let outcome = clients.send(client, &solo.public(), &lost).await;
        assert!(outcome["status"] == 201 && effects(&solo.ledger, &lost.key) == 1, "{client}: {outcome}");
        let other = Case { path: "/v1/charges?other=1", behave: None, retries: 0, ..lost };
        let outcome = clients.send(client, &solo.public(), &other).await;
        assert_eq!(outcome["status"], 400, "{client}: {outcome}");
        assert!(outcome["threw"].is_string(), "{client} takes a refusal for a payment: {outcome}");
    }
}

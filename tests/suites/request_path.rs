//! The rows of the design's tables at the owner, each through the public listener of a real gateway
//! over a real Postgres. Answers are checked against the ledger of the sample upstream.

use crate::support::*;

async fn solo() -> &'static Solo {
    static SOLO: OnceCell<Solo> = OnceCell::const_new();
    SOLO.get_or_init(|| async { Solo::start(&routes(), None).await }).await
}

async fn send(path: &str, key: &str, body: &str, behave: &str) -> Answer {
    let request = post(&solo().await.public(), path, key, body);
    ask(if behave.is_empty() { request } else { request.with("Demo-Behave", behave) }).await
}

async fn count(key: &str) -> u64 {
    effects(&solo().await.ledger, key)
}

#[test]
fn an_absent_key_runs_and_a_settled_key_replays() {
    run(async {
        // A refusal of the upstream is as final as a success.
        for (behave, status, effects) in [("", 201, 1), ("status=402", 402, 0)] {
            let key = key("settled");
            let first = send("/v1/charges", &key, BODY, behave).await;
            assert_eq!(first.status.as_u16(), status, "{}", first.text());
            assert_eq!(first.header("idempotency-key"), key);
            assert_eq!(first.header("onceway-region"), "solo");
            // An IMF-fixdate (RFC 9110, section 5.6.7).
            let expires = first.header("idempotency-expires");
            assert!(expires.len() == 29 && expires.ends_with(" GMT") && &expires[3..4] == ",", "{expires}");
            assert_eq!(first.header("idempotent-replayed"), "");
            let again = send("/v1/charges", &key, BODY, "").await;
            assert_eq!((again.status, &again.body), (first.status, &first.body));
            assert_eq!(again.header("content-type"), first.header("content-type"));
            assert_eq!(again.header("idempotent-replayed"), "true");
            assert_eq!(again.header("original-request-id"), first.header("onceway-request-id"));
            assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
            assert_eq!(count(&key).await, effects);
        }
    });
}

#[test]
fn a_reused_key_is_422_in_every_state() {
    run(async {
        for (behave, state) in [("", "settled"), ("status=429", "released"), ("drop-answer", "in-doubt")] {
            let key = key("reused");
            send("/v1/payouts", &key, BODY, behave).await;
            assert_eq!(key_status(&solo().await.region, &key).await["state"], state);
            let before = count(&key).await;
            let answer = send("/v1/payouts", &key, OTHER_BODY, "").await;
            assert_eq!((answer.status.as_u16(), code(&answer).as_str()), (422, "key-reused"), "{state}");
            assert_eq!(count(&key).await, before, "{state}");
        }
        // Its provider never answers: a copy waits for as long as its route allows.
        let key = key("reused-running");
        let running = tokio::spawn({
            let key = key.clone();
            async move { send("/v1/payouts", &key, BODY, "hang").await }
        });
        becomes(&solo().await.region, &key, "in-progress").await;
        let answer = send("/v1/payouts", &key, OTHER_BODY, "").await;
        assert_eq!((answer.status.as_u16(), code(&answer).as_str()), (422, "key-reused"));
        let copy = send("/v1/payouts", &key, BODY, "").await;
        assert_eq!(copy.status, 409, "{}", copy.text());
        assert!(["in-progress", "outcome-unknown"].contains(&code(&copy).as_str()));
        assert!(copy.header("retry-after").parse::<u64>().is_ok_and(|after| after >= 1));
        assert_eq!(running.await.unwrap().status, 504);
    });
}

#[test]
fn a_dropped_answer_is_found_again_by_the_probe() {
    run(async {
        let key = key("doubt-dropped");
        let lost = send("/v1/charges", &key, BODY, "drop-answer").await;
        assert_eq!((lost.status.as_u16(), code(&lost).as_str()), (504, "outcome-unknown"));
        let retry = send("/v1/charges", &key, BODY, "").await;
        let replayed = (retry.status.as_u16(), retry.header("idempotent-replayed"));
        assert_eq!(replayed, (201, "true"), "{}", retry.text());
        assert_eq!(retry.header("original-request-id"), lost.header("onceway-request-id"));
        let again = send("/v1/charges", &key, BODY, "").await;
        assert_eq!((&again.body, count(&key).await), (&retry.body, 1));
    });
}

#[test]
fn an_oversized_answer_is_streamed_but_not_kept() {
    run(async {
        let key = key("big");
        let first = send("/v1/charges", &key, BODY, "big=5MB").await;
        assert_eq!((first.status.as_u16(), first.body.len()), (201, 5_000_000));
        let again = send("/v1/charges", &key, BODY, "").await;
        assert_eq!((again.status.as_u16(), again.header("onceway-body")), (201, "not-kept"));
        assert_eq!((code(&again).as_str(), again.header("idempotent-replayed")), ("body-not-kept", "true"));
        assert!(again.header("link").contains("#body-not-kept"), "{:?}", again.headers);
        assert_eq!(count(&key).await, 1);
    });
}

#[test]
fn an_optional_route_protects_those_who_send_a_key() {
    run(async {
        let url = format!("{}/v1/notes", solo().await.public());
        let keyless = ask(Ask::post(url.clone(), BODY)).await;
        assert_eq!((keyless.status.as_u16(), keyless.header("onceway-region")), (201, ""));
        let key = key("note");
        let first = send("/v1/notes", &key, BODY, "").await;
        let again = send("/v1/notes", &key, BODY, "").await;
        assert_eq!((&again.body, again.header("idempotent-replayed")), (&first.body, "true"));
        assert_eq!(count(&key).await, 1);
        // It broke after it was sent. No other test of this file has an effect without a key.
        let before = count("").await;
        let broken = ask(Ask::post(url, BODY).with("Demo-Behave", "drop-answer")).await;
        assert_eq!(count("").await, before + 1, "the effect happened");
        assert!(!broken.text().contains("Nothing was sent"), "{}", broken.text());
        assert_eq!(broken.json()["safe_to_retry"], false, "{}", broken.text());
        assert_eq!(broken.header("retry-after"), "", "nobody is invited to do it twice");
    });
}

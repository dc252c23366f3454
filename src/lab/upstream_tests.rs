//! Tests of the sample upstream over real sockets, one per behaviour.
//!
//! Part of [`crate::upstream`]. The suite `request_path` has dropped, refused and large
//! answers.

use std::net::Ipv4Addr;

use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use onceway_client::{Answer, Ask};

const BOUND: Duration = Duration::from_secs(30);
const CHARGE: &str = r#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#;

struct Shop {
    _dir: TempDir,
    ledger: Arc<Ledger>,
    upstream: Upstream,
}

impl Shop {
    async fn open() -> Shop {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(&dir.path().join("ledger.jsonl")).unwrap();
        let upstream =
            Upstream::start("us-east", (Ipv4Addr::LOCALHOST, 0).into(), ledger.clone()).await.unwrap();
        Shop { _dir: dir, ledger, upstream }
    }

    fn post(&self, path: &str, key: &str, behave: &str, body: &'static str) -> Ask {
        let ask = Ask::post(format!("http://{}{path}", self.upstream.address()), body);
        ask.with(KEY, format!("\"{key}\"")).with(TENANT, "acme").with(BEHAVE, behave)
    }

    fn get(&self, path: &str) -> Ask {
        Ask::get(format!("http://{}{path}", self.upstream.address()))
    }

    async fn charge(&self, key: &str, behave: &str) -> anyhow::Result<Answer> {
        self.post("/v1/charges", key, behave, CHARGE).send(BOUND).await
    }

    fn effects(&self, key: &str) -> u64 {
        self.ledger.totals(Some(key)).iter().map(|totals| totals.effects).sum()
    }

    async fn probe(&self, key: &str) -> (Answer, String) {
        let ask = self.get(PROBE_PATH).with(KEY, format!("\"{key}\"")).with(TENANT, "acme");
        let answer = sent(ask.with(EFFECT_PATH, "/v1/charges")).await;
        let said = answer.header(EFFECT).to_owned();
        (answer, said)
    }
}

async fn sent(ask: Ask) -> Answer {
    ask.send(BOUND).await.unwrap()
}

#[tokio::test]
async fn a_form_is_taken_as_stripes_clients_send_it() {
    let shop = Shop::open().await;
    let form = |body: &'static str| {
        let mut ask = shop.post("/v1/charges", "form", "", body);
        ask.headers[0].1 = "application/x-www-form-urlencoded".to_owned();
        ask
    };
    let answer = sent(form("amount=2000&currency=usd&source=tok_visa&metadata[order]=1")).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let answer = answer.json();
    assert_eq!((&answer["amount"], &answer["currency"]), (&2000.into(), &"usd".into()));
    assert_eq!(sent(form("amount=much")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(shop.effects("form"), 1);
}

#[tokio::test]
async fn every_call_has_one_effect_and_nothing_is_deduplicated() {
    let shop = Shop::open().await;
    let first = shop.charge("k\\\"1", "").await.unwrap();
    assert_eq!(first.status, StatusCode::CREATED);
    let first = first.json();
    assert_eq!((&first["object"], &first["currency"]), (&"charge".into(), &"usd".into()));
    assert_eq!(first["amount"], 2000);
    let second = shop.charge("k\\\"1", "").await.unwrap().json();
    assert!(first["id"].as_str().unwrap().starts_with("ch_") && first["id"] != second["id"]);
    let totals = shop.ledger.totals(Some("k\"1"));
    assert_eq!((totals[0].effects, totals[0].tenant.as_str()), (2, "acme"), "the key was not unquoted");
    for (path, object) in [("/v1/payouts", "payout"), ("/v1/emails", "email"), ("/v1/notes", "note")] {
        assert_eq!(sent(shop.post(path, object, "", "{}")).await.json()["object"], object);
        assert_eq!(shop.effects(object), 1);
    }
    assert_eq!(sent(Ask::post(shop.get("/v1/notes").url, "{}")).await.status, StatusCode::CREATED);
    assert_eq!(shop.effects(""), 1);
}

#[tokio::test]
async fn bad_requests_have_no_effect() {
    let shop = Shop::open().await;
    for bad in ["", "{", "[]", r#"{"amount":"much"}"#, r#"{"amount":-1}"#, r#"{"currency":1}"#] {
        let answer = sent(shop.post("/v1/charges", "bad", "", bad)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    assert_eq!(shop.charge("bad", "explode").await.unwrap().status, StatusCode::BAD_REQUEST);
    assert_eq!(sent(shop.post("/v1/refunds", "bad", "", CHARGE)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(sent(shop.get(PROBE_PATH)).await.status, StatusCode::BAD_REQUEST);
    let put = Ask { method: Method::PUT, ..Ask::post(shop.get("/v1/charges").url, CHARGE) };
    assert_eq!(sent(put).await.status, StatusCode::NOT_FOUND);
    assert_eq!(shop.effects("bad"), 0);
}

#[tokio::test]
async fn a_slow_call_is_pending_and_happens_although_the_caller_left() {
    let shop = Shop::open().await;
    let start = Instant::now();
    let call = shop.charge("k", "slow=400ms");
    let watch = async {
        while shop.probe("k").await.1 == "none" {
            tokio::task::yield_now().await;
        }
        assert_eq!((shop.probe("k").await.0.status, shop.effects("k")), (StatusCode::ACCEPTED, 0));
    };
    tokio::select! {
        biased;
        answered = call => panic!("answered before the effect was watched: {answered:?}"),
        watched = timeout(BOUND, watch) => watched.unwrap(),
    }
    // The call was dropped, and its connection with it.
    let happened = async || Ok((shop.probe("k").await.1 == "happened").then_some(()));
    wait::for_some("the effect to happen", BOUND, happened).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(400));
    assert_eq!(shop.effects("k"), 1);
}

#[tokio::test]
async fn a_hanging_call_has_no_effect_and_no_answer() {
    let shop = Shop::open().await;
    let mut hanging = std::pin::pin!(shop.charge("hang", "hang"));
    // Other calls come and go meanwhile; this call stays open.
    for n in 0..20 {
        let key = format!("other-{n}");
        tokio::select! {
            biased;
            answered = &mut hanging => panic!("a hanging call ended: {answered:?}"),
            other = shop.charge(&key, "") => assert_eq!(other.unwrap().status, StatusCode::CREATED),
        }
    }
    assert_eq!((shop.effects("hang"), shop.probe("hang").await.1.as_str()), (0, "none"));
}

#[tokio::test]
async fn a_graceful_stop_lets_a_call_end_and_takes_no_new_one() {
    let shop = Shop::open().await;
    let (address, ledger) = (shop.upstream.address(), shop.ledger.clone());
    let call = tokio::spawn(shop.post("/v1/charges", "k", "slow=200ms", CHARGE).send_owned(BOUND));
    let order = Order { key: "k".into(), tenant: "acme".into(), path: String::new() };
    timeout(BOUND, async {
        while ledger.probe(&order) == Outcome::Nothing {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    shop.upstream.stop(BOUND).await;
    assert_eq!(call.await.unwrap().unwrap().status, StatusCode::CREATED);
    assert!(TcpStream::connect(address).await.is_err());
}

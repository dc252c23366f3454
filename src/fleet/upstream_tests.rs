//! Tests of the sample upstream over real sockets, one per behaviour.
//!
//! Part of [`crate::fleet::upstream`]. They must not use a gateway.

use std::net::Ipv4Addr;

use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;

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

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.upstream.address()).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let mut sender = self.connect().await;
        timeout(BOUND, sender.send_request(request)).await.expect("no answer in time")
    }

    async fn charge(&self, key: &str, behave: &str) -> hyper::Result<Response<Incoming>> {
        self.send(post("/v1/charges", key, behave, CHARGE)).await
    }

    fn effects(&self, key: &str) -> u64 {
        self.ledger.totals(Some(key)).iter().map(|totals| totals.effects).sum()
    }

    /// Status, `Onceway-Effect` and body of a probe.
    async fn probe(&self, key: &str) -> (StatusCode, String, Bytes) {
        let request = Request::get(PROBE_PATH)
            .header(KEY, format!("\"{key}\""))
            .header(TENANT, "acme")
            .header(EFFECT_PATH, "/v1/charges");
        let response = self.send(request.body(Full::default()).unwrap()).await.unwrap();
        let said = response.headers()[EFFECT].to_str().unwrap().to_owned();
        (response.status(), said, response.into_body().collect().await.unwrap().to_bytes())
    }
}

fn post(path: &str, key: &str, behave: &str, body: &str) -> Request<Full<Bytes>> {
    let request =
        Request::post(path).header(KEY, format!("\"{key}\"")).header(TENANT, "acme").header(BEHAVE, behave);
    request.body(Full::from(body.to_owned())).unwrap()
}

async fn body(response: Response<Incoming>) -> Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn every_call_has_one_effect_and_nothing_is_deduplicated() {
    let shop = Shop::open().await;
    let first = shop.charge("k\\\"1", "").await.unwrap();
    assert_eq!(first.status(), StatusCode::CREATED);
    let first = body(first).await;
    assert_eq!(
        (&first["object"], &first["amount"], &first["currency"]),
        (&"charge".into(), &2000.into(), &"usd".into())
    );
    let second = body(shop.charge("k\\\"1", "").await.unwrap()).await;
    assert!(first["id"].as_str().unwrap().starts_with("ch_") && first["id"] != second["id"]);
    let totals = shop.ledger.totals(Some("k\"1"));
    assert_eq!((totals[0].effects, totals[0].tenant.as_str()), (2, "acme"), "the key was not unquoted");
    for (path, object) in [("/v1/payouts", "payout"), ("/v1/emails", "email"), ("/v1/notes", "note")] {
        assert_eq!(body(shop.send(post(path, object, "", "{}")).await.unwrap()).await["object"], object);
        assert_eq!(shop.effects(object), 1);
    }
    let keyless = Request::post("/v1/notes").body(Full::from("{}")).unwrap();
    assert_eq!(shop.send(keyless).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(shop.effects(""), 1);
}

#[tokio::test]
async fn bad_requests_have_no_effect() {
    let shop = Shop::open().await;
    for bad in ["", "{", "[]", r#"{"amount":"much"}"#, r#"{"amount":-1}"#, r#"{"currency":1}"#] {
        let response = shop.send(post("/v1/charges", "bad", "", bad)).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    }
    assert_eq!(shop.charge("bad", "explode").await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(
        shop.send(post("/v1/refunds", "bad", "", CHARGE)).await.unwrap().status(),
        StatusCode::NOT_FOUND
    );
    let keyless = Request::get(PROBE_PATH).body(Full::default()).unwrap();
    assert_eq!(shop.send(keyless).await.unwrap().status(), StatusCode::BAD_REQUEST);
    let put = Request::put("/v1/charges").body(Full::from(CHARGE)).unwrap();
    assert_eq!(shop.send(put).await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(shop.effects("bad"), 0);
}

#[tokio::test]
async fn a_status_on_request_has_no_effect() {
    let shop = Shop::open().await;
    for status in [500, 402, 204] {
        assert_eq!(shop.charge("k", &format!("status={status}")).await.unwrap().status(), status);
    }
    assert_eq!(shop.effects("k"), 0);
    assert_eq!(shop.probe("k").await.1, "none");
}

#[tokio::test]
async fn a_dropped_answer_has_its_effect_and_the_probe_tells_it() {
    let shop = Shop::open().await;
    assert!(shop.charge("k", "drop-answer").await.is_err());
    assert_eq!(shop.effects("k"), 1);
    let (status, said, kept) = shop.probe("k").await;
    assert_eq!((status, said.as_str()), (StatusCode::OK, "happened"));
    assert_eq!(serde_json::from_slice::<Value>(&kept).unwrap()["id"], "ch_00000001");
}

#[tokio::test]
async fn a_slow_call_is_pending_and_happens_although_the_caller_left() {
    let shop = Shop::open().await;
    let start = Instant::now();
    let mut sender = shop.connect().await;
    let call = sender.send_request(post("/v1/charges", "k", "slow=400ms", CHARGE));
    let watch = async {
        while shop.probe("k").await.1 == "none" {
            tokio::task::yield_now().await;
        }
        assert_eq!((shop.probe("k").await.0, shop.effects("k")), (StatusCode::ACCEPTED, 0));
    };
    tokio::select! {
        biased;
        answered = call => panic!("answered before the effect was watched: {answered:?}"),
        watched = timeout(BOUND, watch) => watched.unwrap(),
    }
    drop(sender);
    let happened = async || Ok((shop.probe("k").await.1 == "happened").then_some(()));
    wait::for_some("the effect to happen", BOUND, happened).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(400));
    assert_eq!(shop.effects("k"), 1);
}

#[tokio::test]
async fn a_hanging_call_has_no_effect_and_no_answer() {
    let shop = Shop::open().await;
    let mut sender = shop.connect().await;
    let mut hanging = std::pin::pin!(sender.send_request(post("/v1/charges", "hang", "hang", CHARGE)));
    // Other calls come and go meanwhile; this call stays open.
    for n in 0..20 {
        let key = format!("other-{n}");
        tokio::select! {
            biased;
            answered = &mut hanging => panic!("a hanging call ended: {answered:?}"),
            other = shop.charge(&key, "") => assert_eq!(other.unwrap().status(), StatusCode::CREATED),
        }
    }
    assert_eq!((shop.effects("hang"), shop.probe("hang").await.1.as_str()), (0, "none"));
}

#[tokio::test]
async fn a_big_answer_has_the_size_asked_for_and_is_kept() {
    let shop = Shop::open().await;
    let response = shop.charge("k", "big=5MB").await.unwrap();
    assert_eq!(
        (response.status(), response.headers()["content-length"].to_str().unwrap()),
        (StatusCode::CREATED, "5000000")
    );
    let first = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(first.len(), 5_000_000);
    assert_eq!(serde_json::from_slice::<Value>(&first).unwrap()["object"], "charge");
    assert!(shop.probe("k").await.2 == first, "the probe tells another body");
    assert_eq!(shop.effects("k"), 1);
}

#[tokio::test]
async fn reads_describe_themselves_and_uploads_are_digested() {
    let shop = Shop::open().await;
    let response = shop.send(Request::get("/any/thing?x=1").body(Full::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        body(response).await,
        json!({"method": "GET", "path": "/any/thing", "query": "x=1", "region": "us-east"})
    );
    let large = Request::get("/large").header(BEHAVE, "big=200kB").body(Full::default()).unwrap();
    assert_eq!(
        shop.send(large).await.unwrap().into_body().collect().await.unwrap().to_bytes().len(),
        200_000
    );
    let upload = Request::post("/v1/blobs").body(Full::from("abc")).unwrap();
    let told = body(shop.send(upload).await.unwrap()).await;
    // FIPS 180-2, appendix B.1.
    assert_eq!(
        told,
        json!({"bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"})
    );
    assert_eq!(shop.ledger.totals(None), []);
}

#[tokio::test]
async fn a_graceful_stop_lets_a_call_end_and_takes_no_new_one() {
    let shop = Shop::open().await;
    let (address, ledger) = (shop.upstream.address(), shop.ledger.clone());
    let mut sender = shop.connect().await;
    let call =
        tokio::spawn(
            async move { sender.send_request(post("/v1/charges", "k", "slow=200ms", CHARGE)).await },
        );
    let order = Order { key: "k".into(), tenant: "acme".into(), path: String::new() };
    timeout(BOUND, async {
        while ledger.probe(&order) == Outcome::Nothing {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    shop.upstream.stop(BOUND).await;
    assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::CREATED);
    assert!(TcpStream::connect(address).await.is_err());
}

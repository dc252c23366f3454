//! Two versions side by side: three regions are upgraded one after the other, and no key runs
//! twice. The newer version is made up: this binary with `--speaks 1-2`. The simulation
//! (`gateway/versions.rs`) has two versions over one store.

use crate::support::*;

/// A migration that removes what older gateways use, while one runs, and then one that does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_needs_newer_gateways_closes_older_ones() {
    let solo = Solo::start(&routes(), None).await;
    let admin = solo.region.cluster.connect(DATABASE).await.unwrap();
    let set = async |sql: &str| admin.batch_execute(sql).await.unwrap();
    let why = "run the newer onceway here";
    let lines = async |what: &str| {
        let log = log(&solo.region).await;
        log.lines().filter(|line| line.contains(what) && line.contains(why)).count()
    };
    let (unread, closed) = ("the gate cannot be read", "the store is closed");

    // Such a gate is read now and then, and the reason logged once.
    let reads = async || {
        let sql = "select pg_stat_clear_snapshot(), seq_scan + idx_scan from pg_stat_user_tables where relname = 'meta'";
        admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(1)
    };
    let beats = async || status(&solo.region).await["store"]["heartbeat"].as_u64().unwrap();
    set("update onceway.meta set gateways_from = 99").await;
    until("the gateway to say why", async || lines(unread).await > 0).await;
    let (first, begun) = (beats().await, reads().await);
    until("some heartbeats", async || beats().await >= first + 20).await;
    assert_eq!(lines(unread).await, 1, "said once");
    let (read, beaten) = (reads().await - begun, beats().await - first);
    // A look every 100 ms, a heartbeat every 250 ms.
    assert!(i64::try_from(beaten).unwrap() * 6 > read, "{read} reads in {beaten} heartbeats");

    set("update onceway.meta set gateways_from = 1; select onceway.need_gateways(99)").await;
    let (refused, key) = (key("closed"), key("open"));
    until("it to say why", async || {
        let readiness = status(&solo.region).await["readiness"].clone();
        readiness["ready"] == false && readiness["reasons"].to_string().contains(why)
    })
    .await;
    let answer = ask(post(&solo.public(), "/v1/charges", &refused, BODY)).await;
    assert_eq!((answer.status.as_u16(), code(&answer).as_str()), (503, "store-unavailable"));
    assert_eq!(effects(&solo.ledger, &refused), 0);
    let begun = reads().await;
    until("some more looks", async || reads().await >= begun + 20).await;
    assert_eq!(lines(closed).await, 1, "said once, too");

    set("select onceway.need_gateways(1)").await;
    solo.serves().await;
    assert_eq!(ask(post(&solo.public(), "/v1/charges", &key, BODY)).await.status, 201);
}

/// Sends a key of each region to each region: one effect, and the same answer replayed everywhere.
async fn keys_run_once(three: &Deployment) {
    for home in &three.regions {
        let key = key_at(home, "side").await;
        let mut bodies = Vec::new();
        for region in &three.regions {
            // As clients do, the test repeats the key where that is safe.
            let answered = found("an answer of the upstream", async || {
                let answer = charge(region, &key).await;
                let refused = answer.status == 503 && answer.json()["safe_to_retry"] == true;
                assert!(refused || answer.status == 201, "{}: {}", region.name, answer.text());
                (!refused).then(|| answer.text())
            });
            bodies.push(answered.await);
        }
        assert_eq!(effects(&three.ledger, &key), 1, "{key} of {}", home.name);
        assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "{bodies:?}");
    }
}

async fn raises(region: &Region, to: u32) {
    let output = found("the raise to be possible", async || {
        let output = region.operate(&["protocol", "raise", "--yes"]).await.unwrap();
        (output.status.code() != Some(3)).then_some(output)
    });
    let output = output.await;
    ends(&output, 0, "");
    let in_force = format!("protocol version {to} is in force");
    assert!(out(&output).contains(&in_force), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_upgrade_runs_nothing_twice() {
    let three = deployment(Duration::from_millis(20)).await;
    let [us, eu, ap] = &three.regions[..] else { panic!("three regions") };
    assert_eq!(status(us).await["protocol"], 1, "founded by what all speak");

    // A gateway without a common version.
    replace(ap, Some("2-2")).await;
    let why = "it speaks protocol versions 2-2, this process 1-1";
    // One late ping of a busy machine says nothing of versions.
    let reasons = async || status(us).await["readiness"]["reasons"].to_string();
    until("the stranger to be refused", async || reasons().await.contains(why)).await;
    let foreign = async || series(us, "onceway_peer_foreign{peer=\"ap-south\"}").await;
    until("the stranger to be shown", async || foreign().await == Some(1.0)).await;
    assert_eq!(status(us).await["peers"]["ap-south"]["up"], false, "it is not heard");
    assert!(log(us).await.contains(why));
    let why = "this process speaks 2-2";
    until("it to say why", async || status(ap).await["readiness"].to_string().contains(why)).await;
    let now = status(ap).await;
    let readiness = &now["readiness"];
    assert_eq!([&readiness["serves"], &readiness["ready"], &now["authority"]["lease"]["held"]], [false; 3]);
    assert!(log(ap).await.contains(why), "the log does not say so");
    let refused = ask(post(&ap.public(), "/v1/charges", &key_at(us, "side").await, BODY)).await;
    assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (503, "gateway-outdated"));
    replace(ap, None).await;
    ap.serves().await.unwrap();

    for region in [us, eu] {
        replace(region, Some("1-2")).await;
        region.serves().await.unwrap();
    }
    let now = status(us).await;
    assert_eq!((&now["speaks"], &now["peers"]["eu-west"]["speaks"]), (&"1-2".into(), &"1-2".into()));
    assert_eq!((&now["peers"]["ap-south"]["speaks"], &now["protocol"]), (&"1-1".into(), &1.into()));
    raises(us, 1).await;
    keys_run_once(&three).await;

    replace(ap, Some("1-2")).await;
    ap.serves().await.unwrap();
    raises(eu, 2).await;
    for region in &three.regions {
        until("the raise to be known", async || status(region).await["protocol"] == 2).await;
        region.serves().await.unwrap();
    }
    keys_run_once(&three).await;
    three.shut_down().await.unwrap();
}

//! Three real regions whose parts are killed, paused and cut off: they fail closed, say why, and
//! work again without help.
//!
//! Answers to clients are checked against the ledger: nothing is sent without a durable claim, and
//! nothing happens twice. A test must not leave anything broken.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::support::solo::{Solo, routes};
use crate::support::{
    BODY, PATIENCE, ask, code, deployment, effects, key, key_status, post, run, said, until,
};
use onceway::adapters::identity::{PeerIdentity, files_in};
use onceway::adapters::issue::{Purpose, add};
use onceway::fleet::client::{Answer, Ask};
use onceway::fleet::deployment::Deployment;
use onceway::fleet::files;
use onceway::fleet::region::{Action, Part, Region};
use onceway::protocol::region::RegionName;
use onceway::protocol::speakers::{Kind, Sender};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Three regions of the test's own: one test's damage must not be another one's beginning.
async fn three() -> Deployment {
    deployment(Duration::from_millis(20)).await
}

/// A key whose home is this region, once it serves. Earlier faults may have cost the region its
/// lease, and then it first has to come home.
async fn homed_at(three: &Deployment, home: usize, word: &str) -> String {
    let name = three.regions[home].name.as_str();
    let found = std::sync::Mutex::new(None);
    until("a key that is at home", async || {
        let key = key(word);
        let owned = key_status(&three.regions[(home + 1) % 3], &key).await["owner"] == name;
        let at_home = owned && key_status(&three.regions[home], &key).await["owner"] == name;
        if at_home && three.regions[home].serves().await.is_ok() {
            *found.lock().unwrap() = Some(key);
            return true;
        }
        false
    })
    .await;
    found.into_inner().unwrap().unwrap()
}

async fn charge(region: &Region, key: &str) -> Answer {
    ask(post(&region.public(), "/v1/charges", key, BODY)).await
}

/// Repeats the charge until it is answered 201.
async fn charged(region: &Region, key: &str) {
    until("the charge to be answered 201", async || charge(region, key).await.status == 201).await;
}

/// Repeats the charge until it is refused with this code.
async fn refused(region: &Region, key: &str, expected: &str) -> Answer {
    let told = std::sync::Mutex::new(None);
    until(expected, async || {
        let answer = charge(region, key).await;
        assert!(answer.status.is_server_error(), "{}: {}", answer.status, answer.text());
        let done = code(&answer) == expected;
        *told.lock().unwrap() = Some(answer);
        done
    })
    .await;
    told.into_inner().unwrap().unwrap()
}

#[test]
fn the_homes_gateway_killed_between_send_and_settle() {
    run(async {
        let three = three().await;
        let [edge, home] = [&three.regions[0], &three.regions[1]];
        let key = homed_at(&three, 1, "killed").await;
        let request = post(&edge.public(), "/v1/charges", &key, BODY).with("Demo-Behave", "slow=1500ms");
        let cut_off = tokio::spawn(request.send_owned(PATIENCE));
        until("the payment to be in progress", async || {
            key_status(home, &key).await["state"] == "in-progress"
        })
        .await;
        home.act(Action::Kill, Part::Gateway).await.unwrap();
        let told = cut_off.await.unwrap().unwrap();
        assert!(told.status.is_server_error(), "{}", told.text());
        assert_eq!(told.json()["safe_to_retry"], true);
        home.act(Action::Start, Part::Gateway).await.unwrap();
        charged(edge, &key).await;
        assert_eq!(effects(&three.ledger, &key), 1);
    });
}

#[test]
fn the_homes_postgres_killed() {
    run(async {
        let three = three().await;
        let home = &three.regions[2];
        let before = homed_at(&three, 2, "before").await;
        assert_eq!(charge(home, &before).await.status, 201);
        let during = homed_at(&three, 2, "during").await;
        home.act(Action::Kill, Part::Postgres).await.unwrap();
        for region in &three.regions {
            let answer = refused(region, &during, "store-unavailable").await;
            assert_eq!(answer.status, 503);
            assert!(answer.header("retry-after").parse::<u64>().is_ok());
        }
        assert_eq!(effects(&three.ledger, &during), 0, "sent without a durable claim");
        until("the health check to notice, while it can still forward", async || {
            let ready = ask(Ask::get(format!("{}/readyz", home.admin()))).await;
            ready.status == 200 && ready.json()["serves"] == false
        })
        .await;
        home.act(Action::Start, Part::Postgres).await.unwrap();
        charged(&three.regions[0], &during).await;
        assert_eq!(charge(home, &before).await.header("idempotent-replayed"), "true");
        assert_eq!((effects(&three.ledger, &during), effects(&three.ledger, &before)), (1, 1));
    });
}

#[test]
fn the_homes_postgres_stalled() {
    run(async {
        let three = three().await;
        let home = &three.regions[1];
        let key = homed_at(&three, 1, "stalled").await;
        home.act(Action::Pause, Part::Postgres).await.unwrap();
        for region in &three.regions {
            refused(region, &key, "store-unavailable").await;
        }
        assert_eq!(effects(&three.ledger, &key), 0, "sent without a confirmed claim");
        home.act(Action::Resume, Part::Postgres).await.unwrap();
        charged(&three.regions[2], &key).await;
        assert_eq!(effects(&three.ledger, &key), 1);
    });
}

#[test]
fn the_homes_gateway_paused_beyond_its_hold() {
    run(async {
        let three = three().await;
        let [edge, home] = [&three.regions[0], &three.regions[2]];
        let key = homed_at(&three, 2, "paused").await;
        let request = post(&edge.public(), "/v1/charges", &key, BODY).with("Demo-Behave", "slow=1s");
        let waiting = tokio::spawn(request.send_owned(PATIENCE));
        until("the payment to be in progress", async || {
            key_status(home, &key).await["state"] == "in-progress"
        })
        .await;
        home.act(Action::Pause, Part::Gateway).await.unwrap();
        // The edge gives the silent home up by its pings, long before any time-out.
        let told = waiting.await.unwrap().unwrap();
        assert!(["home-unavailable", "outcome-unknown"].contains(&code(&told).as_str()), "{}", told.text());
        refused(edge, &key, "home-unavailable").await;
        home.act(Action::Resume, Part::Gateway).await.unwrap();
        charged(edge, &key).await;
        assert_eq!(effects(&three.ledger, &key), 1);
    });
}

#[test]
fn the_home_cut_off_and_frozen_out() {
    run(async {
        let three = three().await;
        let [edge, home] = [&three.regions[0], &three.regions[1]];
        for (word, freeze) in [("cut", false), ("frozen", true)] {
            let old = homed_at(&three, 1, word).await;
            let first = charge(edge, &old).await;
            assert_eq!(first.status, 201, "{}", first.text());
            until("the record to be copied", async || key_status(edge, &old).await["state"] == "settled")
                .await;
            if freeze {
                three.links.freeze(0, 1, false).unwrap();
            } else {
                three.links.cut(0, 1, false).unwrap();
            }
            let new = homed_at(&three, 1, word).await;
            let answer = refused(edge, &new, "home-unavailable").await;
            assert_eq!((answer.status.as_u16(), &answer.json()["safe_to_retry"]), (503, &true.into()));
            let replay = charge(edge, &old).await;
            assert_eq!((replay.status.as_u16(), &replay.body), (201, &first.body));
            // Clients that still reach the home are served by it.
            assert_eq!(charge(home, &new).await.status, 201);
            three.links.heal(0, 1, false).unwrap();
            charged(edge, &new).await;
            assert_eq!((effects(&three.ledger, &new), effects(&three.ledger, &old)), (1, 1));
        }
    });
}

/// Runs a statement on a region's store that only its owner could.
async fn in_store(region: &Region, sql: &str) {
    let config: tokio_postgres::Config = region.show().postgres.parse().unwrap();
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
}

#[test]
fn a_store_that_goes_back_while_it_runs_is_closed() {
    run(async {
        let three = three().await;
        let home = &three.regions[1];
        let key = homed_at(&three, 1, "reverted").await;
        in_store(home, "update onceway.heartbeats set seq = 0 where origin = 'eu-west#1'").await;
        until("the gateway to notice", async || {
            let ready = ask(Ask::get(format!("{}/readyz", home.admin()))).await.json();
            ready["serves"] == false && ready["reasons"].to_string().contains("went back while it ran")
        })
        .await;
        refused(home, &key, "store-unavailable").await;
        assert_eq!(effects(&three.ledger, &key), 0);
        let told = |why: &str| {
            let log = std::fs::read_to_string(home.gateway_log()).unwrap();
            log.lines().filter(|line| line.contains("ERROR") && line.contains(why)).count()
        };
        // As an error: only a rebuild opens it again.
        until("it to be told", async || told("the store went back while it ran: ") == 1).await;

        // After a restart, the store asks its peers for its heartbeats that they saw. That is
        // logged once, and checked again and again.
        home.act(Action::Kill, Part::Both).await.unwrap();
        home.act(Action::Start, Part::Both).await.unwrap();
        until("the gateway to say why", async || told("the store went back: ") > 0).await;
        let other = format!("{}/v1/status", three.regions[0].admin());
        let beat = async || ask(Ask::get(&other)).await.json()["store"]["heartbeat"].as_u64().unwrap();
        let first = beat().await;
        until("some heartbeats", async || beat().await >= first + 8).await;
        assert_eq!(told("the store went back: "), 1, "said once");

        // As a rebuilt store would come back.
        in_store(home, "update onceway.heartbeats set seq = seq + 1000000 where origin = 'eu-west#1'").await;
        home.act(Action::Stop, Part::Gateway).await.unwrap();
        home.act(Action::Start, Part::Gateway).await.unwrap();
        charged(home, &key).await;
    });
}

#[test]
fn a_store_of_another_history_waits_for_both_peers() {
    run(async {
        let three = three().await;
        let [home, away] = [&three.regions[0], &three.regions[2]];
        let key = homed_at(&three, 0, "restored").await;
        // As after a restore: the last approved boot is of another timeline than the running
        // server.
        in_store(home, "update onceway.gate set boot_timeline = boot_timeline + 1").await;
        away.act(Action::Pause, Part::Gateway).await.unwrap();
        home.act(Action::Kill, Part::Postgres).await.unwrap();
        home.act(Action::Start, Part::Postgres).await.unwrap();
        until("the approval to wait for the second peer", async || {
            let ready = ask(Ask::get(format!("{}/readyz", home.admin()))).await.json();
            ready["reasons"]
                .to_string()
                .contains("2 peers must say what they saw and heard of this region, 1 did")
        })
        .await;
        refused(home, &key, "store-unavailable").await;
        away.act(Action::Resume, Part::Gateway).await.unwrap();
        charged(home, &key).await;
        assert_eq!(effects(&three.ledger, &key), 1);
    });
}

#[test]
fn the_largest_observed_lag_outlives_the_gateway() {
    run(async {
        let three = three().await;
        let [watcher, origin] = [&three.regions[0], &three.regions[2]];
        three.links.set_rtt(0, 2, Duration::from_millis(600), false).unwrap();
        until("a lag above the round trip to be measured", async || lag_max(watcher, origin).await >= 600.0)
            .await;
        until("it to be remembered in the store", async || {
            let store = watcher.cluster.connect("onceway").await.unwrap();
            let remembered =
                "select 1 from onceway.peer_memory where origin = 'ap-south#1' and lag_ms >= 600";
            store.query_opt(remembered, &[]).await.unwrap().is_some()
        })
        .await;
        watcher.act(Action::Kill, Part::Gateway).await.unwrap();
        three.links.set_rtt(0, 2, Duration::from_millis(20), false).unwrap();
        watcher.act(Action::Start, Part::Gateway).await.unwrap();
        watcher.serves().await.unwrap();
        assert!(lag_max(watcher, origin).await >= 600.0, "a restarted gateway believes in a smaller lag");
    });
}

/// The largest lag behind `origin` in the trailing period, by `watcher`'s status, in milliseconds.
async fn lag_max(watcher: &Region, origin: &Region) -> f64 {
    let status = ask(Ask::get(format!("{}/v1/status", watcher.admin()))).await.json();
    status["peers"][origin.name.as_str()]["lag_max_ms"].as_f64().unwrap_or_default()
}

#[test]
fn a_gateway_killed_between_claim_and_send() {
    run(async {
        // An upstream whose connections cannot be made: the gateway stays between claim and send
        // for as long as it tries.
        let full = FullListener::start().await;
        let solo = Solo::start(&routes(), Some(full.address)).await;
        let key = key("unsent");
        let cut_off = tokio::spawn(post(&solo.public(), "/v1/charges", &key, BODY).send_owned(PATIENCE));
        until("the key to be claimed", async || {
            key_status(&solo.region, &key).await["state"] == "in-progress"
        })
        .await;
        solo.region.act(Action::Kill, Part::Gateway).await.unwrap();
        assert!(cut_off.await.unwrap().is_err(), "a killed gateway answers nobody");
        assert_eq!(effects(&solo.ledger, &key), 0);
        drop(full);
        solo.region.act(Action::Start, Part::Gateway).await.unwrap();
        solo.serves().await;
        // The claim has a hold, and no region may run the key before its end. Then the key is in
        // doubt: nobody can know from outside.
        let waiting = charge(&solo.region, &key).await;
        assert_eq!((waiting.status.as_u16(), code(&waiting).as_str()), (409, "in-progress"));
        until("the claim to read as doubt", async || {
            key_status(&solo.region, &key).await["state"] == "in-doubt"
        })
        .await;
        let asked = charge(&solo.region, &key).await;
        assert_eq!(
            (asked.status.as_u16(), code(&asked).as_str()),
            (409, "outcome-unknown"),
            "nobody can be asked"
        );
        assert_eq!(effects(&solo.ledger, &key), 0);
    });
}

#[test]
fn an_upstream_that_refuses_connections_is_surely_not_sent_to() {
    run(async {
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let solo = Solo::start(&routes(), Some(nobody)).await;
        let key = key("refused");
        for _ in 0..2 {
            let answer = charge(&solo.region, &key).await;
            assert_eq!((answer.status.as_u16(), code(&answer).as_str()), (502, "upstream-unavailable"));
            assert_eq!(key_status(&solo.region, &key).await["state"], "released");
        }
    });
}

#[test]
fn a_stop_lets_what_runs_finish_and_refuses_the_rest() {
    run(async {
        let solo = Solo::start(&routes(), None).await;
        let key = key("stopping");
        let running = post(&solo.public(), "/v1/charges", &key, BODY).with("Demo-Behave", "slow=900ms");
        let running = tokio::spawn(running.send_owned(PATIENCE));
        until("the key to be claimed", async || {
            key_status(&solo.region, &key).await["state"] == "in-progress"
        })
        .await;
        solo.region.act(Action::Stop, Part::Gateway).await.unwrap();
        assert_eq!(running.await.unwrap().unwrap().status, 201);
        solo.region.act(Action::Start, Part::Gateway).await.unwrap();
        solo.serves().await;
        let again = charge(&solo.region, &key).await;
        assert_eq!((again.header("idempotent-replayed"), effects(&solo.ledger, &key)), ("true", 1));
    });
}

/// One series of a gateway's metrics.
async fn series(region: &Region, name: &str) -> f64 {
    let page = ask(Ask::get(format!("{}/metrics", region.admin()))).await.text();
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn a_store_that_answers_no_claims_costs_neither_the_lease_nor_anybodys_time() {
    run(async {
        const OPEN: &str = "onceway_store_breaker_open{calls=\"writes\"}";
        const SPARED: &str = "onceway_store_spared_total{calls=\"writes\"}";
        let solo = Solo::start(&routes(), None).await;
        let (region, before) = (&solo.region, key("before"));
        assert_eq!(charge(region, &before).await.status, 201);
        let locking = region.cluster.connect(files::DATABASE).await.unwrap();
        locking.batch_execute("begin; lock table onceway.records in share mode").await.unwrap();
        let stuck = key("stuck");
        until("the store to be spared", async || {
            let storm = (0..40).map(|at| {
                tokio::spawn(
                    post(&region.public(), "/v1/charges", &format!("{stuck}-{at}"), BODY)
                        .send_owned(PATIENCE),
                )
            });
            for told in storm.collect::<Vec<_>>() {
                assert_eq!(code(&told.await.unwrap().unwrap()), "store-unavailable");
            }
            series(region, OPEN).await == 1.0
        })
        .await;
        let refused = charge(region, &stuck).await;
        assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (503, "store-unavailable"));
        assert_eq!(refused.json()["safe_to_retry"], true);
        assert!(refused.header("retry-after").parse::<u64>().is_ok());
        assert!(series(region, SPARED).await >= 1.0);
        assert_eq!(charge(region, &before).await.header("idempotent-replayed"), "", "a retry claims, too");
        let status = ask(Ask::get(format!("{}/v1/status", region.admin()))).await.json();
        assert!(status["store"]["spared"].as_str().unwrap().starts_with("writes of keys"), "{status}");
        assert_eq!((&status["store"]["open"], &status["readiness"]["serves"]), (&true.into(), &false.into()));
        // Far longer than a lease: heartbeats and renewals go on.
        let beat = status["store"]["heartbeat"].as_u64().unwrap();
        until("twenty heartbeats more", async || {
            assert_eq!(series(region, "onceway_lease_held").await, 1.0);
            series(region, "onceway_heartbeat_seq").await >= (beat + 20) as f64
        })
        .await;
        locking.batch_execute("rollback").await.unwrap();
        charged(region, &stuck).await;
        solo.serves().await;
        assert_eq!(series(region, OPEN).await, 0.0);
        assert_eq!((effects(&solo.ledger, &stuck), effects(&solo.ledger, &before)), (1, 1));
    });
}

/// A listening socket whose queue is full: the kernel answers no further attempt to connect.
struct FullListener {
    address: SocketAddr,
    _listener: TcpListener,
    _fillers: Vec<tokio::task::JoinHandle<std::io::Result<TcpStream>>>,
}

impl FullListener {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let fillers: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
        // Full once an attempt to connect has not succeeded after a while.
        let attempt = || async move {
            let tried = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await;
            tried.is_err()
        };
        until("the listener's queue to be full", attempt).await;
        Self { address, _listener: listener, _fillers: fillers }
    }
}

/// The epoch and standings of a region's gateways, and their refusals of strangers.
async fn standing(region: &Region) -> (u64, serde_json::Value, f64) {
    let status = ask(Ask::get(format!("{}/v1/status", region.admin()))).await.json();
    let page = ask(Ask::get(format!("{}/metrics", region.admin()))).await.text();
    let series = "onceway_peer_refusals_total{sender=\"stranger\"} ";
    let refused = page.lines().find_map(|line| line.strip_prefix(series)?.parse().ok());
    (status["epoch"].as_u64().unwrap(), status["authority"]["regions"].clone(), refused.unwrap())
}

/// The lines of a region's log that tell of a refused message.
fn refusals(region: &Region) -> u64 {
    let log = std::fs::read_to_string(region.gateway_log()).unwrap();
    log.lines().filter(|line| line.contains("a peer may not say this")).count() as u64
}

/// The regions of a status, by name.
fn names(regions: &serde_json::Value) -> Vec<String> {
    regions.as_array().unwrap().iter().map(|one| one["name"].to_string()).collect()
}

/// Certificates of the deployment's authority, of no region, of a witness and of another region:
/// each forbidden cell of the table, with real certificates. The runbook has those of a region that
/// joins, and of one that left.
#[test]
fn a_certificate_of_no_region_may_say_nothing_and_a_lost_region_is_taken_over_right_after() {
    run(async {
        let three = three().await;
        let folder = three.dir().join("certificates");
        let [mallory, witness] = ["mallory", "w-1"].map(|name| RegionName::parse(name).unwrap());
        add(&folder, std::slice::from_ref(&mallory), Purpose::Region).unwrap();
        add(&folder, std::slice::from_ref(&witness), Purpose::Witness).unwrap();
        let identity =
            |name: &RegionName| PeerIdentity::load(name.clone(), &files_in(&folder, name)).unwrap();
        let (stranger, answers) = (identity(&mallory), identity(&witness));
        let key = homed_at(&three, 0, "right-after").await;
        for region in &three.regions {
            let address = said::listens(&three, region);
            let (_, regions, before) = standing(region).await;
            let begun = std::time::Instant::now();
            let count = said::forbidden(&stranger, &mallory, Sender::Stranger, &region.name, &address).await;
            assert_eq!(count, Kind::ALL.len(), "it may say nothing");
            for (kind, request) in said::all(&witness, &witness, &region.name) {
                let told = said::say(&answers, &region.name, &address, request).await;
                let kind = kind.name();
                assert!(told.is_err(), "a witness's certificate opened a connection for {kind}: {told:?}");
            }
            let after = standing(region).await;
            // A busy machine may judge a region lost meanwhile: only what was said is looked for.
            assert!(after.0 < said::POISONED, "the view that {mallory} said is followed: {}", after.0);
            assert_eq!(names(&after.1), names(&regions), "the regions of {}'s view", region.name);
            assert!(after.2 >= before + count as f64, "{} then {}: each is counted", before, after.2);
            // The log is written behind the answers.
            until("the refusal's line in the log", async || refusals(region) > 0).await;
            let most = 1 + begun.elapsed().as_secs() / 60;
            assert!(refusals(region) <= most, "at most {most} lines of {}", region.name);
        }
        // A region of the ring, in the name of another one.
        let [to, from, named] = [0, 1, 2].map(|number: usize| &three.regions[number]);
        let address = said::listens(&three, to);
        let count =
            said::in_anothers_name(&identity(&from.name), &from.name, &named.name, &to.name, &address).await;
        assert!(count > 4, "{count} messages must be of their sender");
        assert_eq!(effects(&three.ledger, "mallory-1"), 0);
        three.regions[0].act(Action::Kill, Part::Both).await.unwrap();
        charged(&three.regions[1], &key).await;
        assert_eq!(effects(&three.ledger, &key), 1);
        three.shut_down().await.unwrap();
    });
}

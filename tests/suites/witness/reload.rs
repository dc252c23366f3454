//! A witness's files changed while it runs: certificates, the token, and changes that wait for a
//! restart.
//!
//! `../witness.rs` starts the process, `tests/suites/reload.rs` does the same to a gateway.

use crate::net::support::{Pki, region};
use crate::support::*;
use crate::witness::{PATIENCE, begun, bring, house, peers};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

/// Holders of old certificates are strangers from then on. Wrong files change nothing.
#[tokio::test]
async fn changed_files_are_reloaded_all_or_none() {
    let (house, running) = begun().await;
    let config = async || house.get("/v1/status").await.json()["config"].clone();
    let shown = async |what: &str, is: &dyn Fn(&Value) -> bool| {
        found(what, async || Some(config().await).filter(|said| is(said))).await
    };
    let first = config().await;
    assert_eq!(first["current"], true);

    let newer = Pki::new(&["us-east", "eu-west", "witness-1"]);
    bring(&newer, &house.path("certs"));
    let renewed = peers(&newer, &house.peer);
    let ping = async || renewed.ping(&region("witness-1"), PATIENCE).await.is_ok();
    until("the new certificate to be shown", ping).await;
    let stranger = peers(&Pki::new(&["us-east"]), &house.peer);
    assert!(stranger.ping(&region("witness-1"), PATIENCE).await.is_err());

    fs::write(house.path("certs/witness-1.pem"), "no certificate").unwrap();
    running.signal(Signal::HUP);
    let said = shown("the wrong file to be seen", &|said| said["current"] == false).await;
    assert!(said["problems"][0].as_str().unwrap().contains("witness-1.pem"), "{said}");
    assert_eq!(house.gauge("onceway_witness_config_current").await, "0");
    let again = peers(&newer, &house.peer).ping(&region("witness-1"), PATIENCE).await;
    assert!(again.is_ok(), "it goes on as before: {again:?}");

    bring(&newer, &house.path("certs"));
    let ring = fs::read_to_string(house.path("ring.toml")).unwrap();
    fs::write(house.path("ring.toml"), ring.replace("drift_ppm = 500", "drift_ppm = 600")).unwrap();
    let waits = |said: &Value| said["restart"] == json!(["clock"]);
    let said = shown("the clock to wait for a restart", &waits).await;
    assert_eq!((&said["current"], said["problems"].as_array().map(Vec::len)), (&false.into(), Some(0)));

    fs::write(house.path("ring.toml"), &ring).unwrap();
    let said = shown("everything to be running", &|said| said["current"] == true).await;
    assert_eq!(said["restart"], json!([]));
    assert!(said["loaded_ms"].as_i64() > first["loaded_ms"].as_i64(), "{first} {said}");

    // An authority that ended long ago: the metrics show it once it counts.
    let mut ended = CertificateParams::new(vec!["ended".to_owned()]).unwrap();
    ended.not_after = rcgen::date_time_ymd(2001, 1, 1);
    ended.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ended = ended.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let ca = house.path("certs/ca.pem");
    fs::write(&ca, fs::read_to_string(&ca).unwrap() + &ended).unwrap();
    running.signal(Signal::HUP);
    let gauge = "onceway_certificate_expires_timestamp_seconds{of=\"authority\"}";
    until("its end to be shown", async || house.gauge(gauge).await == "978307200").await;
}

/// The address waits for a restart, so its token stays: no file opens a listener.
#[tokio::test]
async fn a_new_token_applies_and_stays_with_its_address() {
    let house = house();
    house.init();
    let loopback = fs::read_to_string(house.path("witness.toml")).unwrap();
    let (asks, first, second) =
        ("token_file = \"token\"", "the-first-token-of-a-witness", "its-second-token-is-another");
    let admin = house.admin.trim_start_matches("http://");
    let wide = loopback.replacen("# token_file = \"secrets/admin-token\"", asks, 1).replacen(
        admin,
        &admin.replacen("127.0.0.1", "0.0.0.0", 1),
        1,
    );
    assert!(wide.contains(asks) && wide.contains("\"0.0.0.0:"), "{wide}");
    fs::write(house.path("witness.toml"), wide).unwrap();
    fs::write(house.path("token"), first).unwrap();
    let running = house.start().await;
    let asked = async |token: &str| {
        let ask =
            Ask::get(format!("{}/v1/status", house.admin)).with("Authorization", format!("Bearer {token}"));
        ask.send(PATIENCE).await.unwrap()
    };
    let status = async |token: &str| asked(token).await.status.as_u16();
    assert_eq!([status(first).await, status(second).await, status("").await], [200, 401, 401]);

    fs::write(house.path("token"), second).unwrap();
    running.signal(Signal::HUP);
    until("the second token to count", async || status(second).await == 200).await;
    assert_eq!(status(first).await, 401);

    fs::write(house.path("witness.toml"), loopback).unwrap();
    running.signal(Signal::HUP);
    let waits = async || asked(second).await.json()["config"]["restart"] == json!(["listen.admin"]);
    until("the address to wait for a restart", waits).await;
    assert_eq!([status(second).await, status("").await], [200, 401]);
}

/// Writes a certificate for this machine's loopback address, which is its own authority.
fn certify(house: &super::House) {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(house.path("certs/admin.key"), key.serialize_pem()).unwrap();
    fs::write(house.path("certs/admin.pem"), made.pem()).unwrap();
}

#[tokio::test]
async fn the_admin_listener_speaks_tls_with_its_newest_certificate() {
    let house = house();
    house.init();
    certify(&house);
    let text = fs::read_to_string(house.path("witness.toml")).unwrap();
    let tls = "[admin.tls]\ncertificate = \"certs/admin.pem\"\nkey = \"certs/admin.key\"\n";
    fs::write(house.path("witness.toml"), text + tls).unwrap();
    let running = house.start().await;
    let base = house.admin.replacen("http://", "https://", 1);
    let health = async || {
        let files = TlsFiles { ca: Some(house.path("certs/admin.pem")), ..TlsFiles::default() };
        let tls = Some(Tls::load(&files).unwrap().now());
        Ask { tls, ..Ask::get(format!("{base}/healthz")) }.send(PATIENCE).await
    };
    assert_eq!(health().await.unwrap().status, 200);
    let plain = Ask::get(format!("{}/healthz", house.admin)).send(PATIENCE).await;
    assert!(plain.is_err(), "{plain:?}");

    // The command line believes the authority that it is given, and no other.
    let asked = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onceway"));
        command.args(["coverage", "--admin", &base]).args(more);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let authority = house.path("certs/admin.pem");
    let known = asked(&["--admin-ca", authority.to_str().unwrap()]);
    assert!(known.contains("answered 404 Not Found: ask /healthz, /metrics or /v1/status"), "{known}");
    assert!(asked(&[]).contains("UnknownIssuer"), "{}", asked(&[]));

    certify(&house);
    running.signal(Signal::HUP);
    until("the new certificate to be shown", async || health().await.is_ok()).await;
}

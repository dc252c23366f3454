//! Causes by machines and files, such as a dead gateway, a faulty store, a sick upstream or a wrong
//! file.
//!
//! Stores lose rows, are slow or silent, or answer errors; settings differ; certificates expire.
//! `stage` looks at the alerts. Everything is mended before the next group. It must not take a
//! majority away.

use crate::alerts::requests::{doubts, ruled};
use crate::alerts::stage::{Stage, instance};
use crate::support::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Longer than the bound of OncewayStoreSlow.
const STALL: Duration = Duration::from_millis(350);
pub const DAY: Duration = Duration::from_secs(86_400);

/// Deletes rows of us-east from its store while their attempts run, so that their answers find no
/// row.
pub async fn rows_lost(stage: &Stage) {
    let us = &stage.fleet.regions[0];
    let (mut keys, mut asked) = (Vec::new(), JoinSet::new());
    for _ in 0..4 {
        let key = stage.key_of(0, None).await;
        let request = post(&us.public(), "/v1/payouts", &key, BODY).with("Demo-Behave", "slow=2500ms");
        asked.spawn(request.send_owned(PATIENCE));
        keys.push(key.into_bytes());
    }
    let client = us.cluster.connect(files::DATABASE).await.unwrap();
    until("a claim to be lost", async || {
        // Only running attempts have rows: a busy machine may not have begun all of them.
        let delete = "delete from onceway.records where origin = 'us-east#1' and key = any($1)";
        client.execute(delete, &[&keys]).await.unwrap() > 0
    })
    .await;
    stage.fires("OncewayLateAnswers", &[("region", "us-east"), ("route", "payouts")]).await;
    let lost = [("region", "us-east"), ("route", "payouts"), ("tenant", "acme")];
    stage.fires("OncewayClaimsLost", &lost).await;
    asked.join_all().await;
}

pub async fn gateway_dies(stage: &Stage) {
    let us = &stage.fleet.regions[0];
    us.act_on(1, Action::Kill).await.unwrap();
    let instance = instance(&us.gateways[1].admin());
    stage.fires("OncewayDown", &[("region", "us-east"), ("instance", &instance)]).await;
    us.act_on(1, Action::Start).await.unwrap();
    stage.quiet("OncewayDown", &[]).await;
    us.serves().await.unwrap();
}

/// One of us-east's two gateways does not reach their store any more; the other one does.
pub async fn gateway_alone(stage: &Stage) {
    let us = &stage.fleet.regions[0];
    let port = us.cluster.port();
    let way = Relay::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.unwrap();
    let file = "us-east-2.toml";
    let direct = fs::read_to_string(stage.fleet.dir().join(file)).unwrap();
    let at = |port: u16| format!("\nurl = \"postgres://{}@127.0.0.1:{port}/", files::GATEWAY_ROLE);
    let relayed = direct.replace(&at(port), &at(way.local_addr().port()));
    assert_ne!(relayed, direct, "the store's address is found");
    let restart = async |text: &str| {
        us.act_on(1, Action::Stop).await.unwrap();
        files::replace(stage.fleet.dir(), file, text).unwrap();
        us.act_on(1, Action::Start).await.unwrap();
        us.serves().await.unwrap();
    };
    restart(&relayed).await;
    stage.quiet("OncewayGatewayRunsNothing", &[]).await;
    way.freeze(Direction::Forward);
    let instance = instance(&us.gateways[1].admin());
    stage.fires("OncewayGatewayRunsNothing", &[("region", "us-east"), ("instance", &instance)]).await;
    let key = stage.key_of(0, None).await;
    stage.expect_status(post(&us.public(), "/v1/charges", &key, BODY), &[201]).await;
    way.thaw(Direction::Forward);
    stage.quiet("OncewayGatewayRunsNothing", &[]).await;
    restart(&direct).await;
}

/// eu-west gets different routes: its file names others, and its gateway is asked to read it again.
pub async fn settings_differ(stage: &Stage) {
    let (dir, eu) = (stage.fleet.dir(), &stage.fleet.regions[1]);
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
    let (file, routes) = (read("eu-west.toml"), read("routes.toml"));
    let (others, elsewhere) =
        (routes.replacen("200ms", "300ms", 1), file.replace("routes.toml", "others.toml"));
    assert!(others != routes && elsewhere != file, "what is changed is found");
    fs::write(dir.join("others.toml"), others).unwrap();
    files::replace(dir, "eu-west.toml", &elsewhere).unwrap();
    eu.process().unwrap().hang_up();
    stage.fires("OncewaySettingsDiffer", &[("region", "us-east"), ("peer", "eu-west")]).await;
    stage.quiet("OncewaySettingsDiffer", &[("region", "us-east"), ("peer", "ap-south")]).await;
    files::replace(dir, "eu-west.toml", &file).unwrap();
    eu.process().unwrap().hang_up();
    stage.quiet("OncewaySettingsDiffer", &[]).await;
}

/// Revokes the gateways' right to write ap-south's records: its store answers each claim with an
/// error. Its heartbeats go on, so its lease and its keys stay with it, and no breaker opens.
pub async fn store_of_errors(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let client = ap.cluster.connect(files::DATABASE).await.unwrap();
    let right = |verb: &str, to: &str| {
        format!("{verb} insert on onceway.records_ap_south_g1 {to} {}", files::GATEWAY_ROLE)
    };
    client.batch_execute(&right("revoke", "from")).await.unwrap();
    let key = stage.key_of(2, None).await;
    let request = post(&ap.public(), "/v1/charges", &key, BODY);
    let answer = ask(request.clone()).await;
    assert!(answer.text().contains("store-unavailable"), "{} {}", answer.status, answer.text());
    stage.fires("OncewayRequestsFail", &[("region", "ap-south")]).await;
    stage.fires("OncewayAvailabilityBurns", &[("region", "ap-south")]).await;
    ap.serves().await.unwrap();
    let breaker = series(ap, "onceway_store_breaker_open{calls=\"writes\"}").await;
    assert_eq!(breaker, Some(0.0), "no breaker opens for answers");
    client.batch_execute(&right("grant", "to")).await.unwrap();
    for name in ["OncewayRequestsFail", "OncewayAvailabilityBurns"] {
        stage.quiet(name, &[]).await;
    }
    stage.expect_status(request, &[201]).await;
}

pub async fn upstream_sick(stage: &Stage) {
    stage.fleet.set_sick(1, true);
    stage.fires("OncewayUpstreamSick", &[("region", "eu-west")]).await;
    stage.fleet.set_sick(1, false);
    stage.quiet("OncewayUpstreamSick", &[]).await;
    stage.fleet.regions[1].serves().await.unwrap();
}

/// Stops and continues ap-south's Postgres, over and over, as a disk that stalls.
pub async fn store_slow(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let over = AtomicBool::new(false);
    let stalls = async {
        while !over.load(SeqCst) {
            ap.act(Action::Pause, Part::Postgres).await.unwrap();
            wait::pause(STALL).await;
            ap.act(Action::Resume, Part::Postgres).await.unwrap();
            wait::pause(STALL).await;
        }
    };
    let seen = async {
        let alert = stage.fires("OncewayStoreSlow", &[("region", "ap-south")]).await;
        assert!(alert.labels.contains_key("op"), "{alert:?}");
        stage.fires("OncewayOverheadBurns", &[("region", "ap-south")]).await;
        over.store(true, SeqCst);
    };
    tokio::join!(stalls, seen);
    for name in ["OncewayStoreSlow", "OncewayOverheadBurns"] {
        stage.quiet(name, &[("region", "ap-south")]).await;
    }
    ap.serves().await.unwrap();
}

/// Locks ap-south's own records against writes, as while an index is built on them. Its heartbeats
/// go on, so its keys stay with it. Rows of others arrive, so no lag grows.
pub async fn store_silent(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let client = ap.cluster.connect(files::DATABASE).await.unwrap();
    client.batch_execute("begin; lock table onceway.records_ap_south_g1 in share mode").await.unwrap();
    stage.fires("OncewayStoreSilent", &[("region", "ap-south"), ("calls", "writes")]).await;
    let key = stage.key_of(2, None).await;
    let request = post(&ap.public(), "/v1/charges", &key, BODY);
    until("a key to be refused where it stays", async || {
        ask(request.clone()).await.text().contains("store-unavailable")
    })
    .await;
    client.batch_execute("rollback").await.unwrap();
    stage.quiet("OncewayStoreSilent", &[]).await;
    stage.expect_status(request, &[201]).await;
    ap.serves().await.unwrap();
}

/// Sends a ping to us-east under a certificate that belongs to no region.
pub async fn stranger(stage: &Stage) {
    let identity = said::stranger(&stage.fleet);
    let why = said::refusal(&identity, &stage.fleet, &stage.fleet.regions[0]).await;
    assert!(why.contains("403"), "{why}");
    stage.fires("OncewayPeerRefused", &[("region", "us-east"), ("sender", "stranger")]).await;
    stage.quiet("OncewayPeerRefused", &[]).await;
}

/// Replaces a region's certificate and key by new ones under the fleet's authority.
pub fn certified(stage: &Stage, region: &RegionName, life: Duration) {
    let folder = stage.fleet.dir().join("certificates");
    let named = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let key = KeyPair::from_pem(&fs::read_to_string(folder.join("ca.key")).unwrap()).unwrap();
    let authority = Issuer::new(named("onceway authority"), key);
    let name = format!("{region}.onceway");
    let mut params = CertificateParams::new(vec![name.clone()]).unwrap();
    params.distinguished_name = named(&name).distinguished_name;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + (now - DAY);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + life;
    params.is_ca = IsCa::ExplicitNoCa;
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let files = files_in(&folder, region);
    fs::write(files.key, key.serialize_pem()).unwrap();
    fs::write(files.certificate, certificate.pem()).unwrap();
}

/// The certificate of eu-west has ten days left, that of ap-south one, and ap-south's file is
/// broken. Keys in doubt are left alone, as is an accepted request that its upstream refuses over
/// and over.
pub async fn left_alone(stage: &Stage) {
    let [us, eu, ap] = [&stage.fleet.regions[0], &stage.fleet.regions[1], &stage.fleet.regions[2]];
    let keys = doubts(stage, 2).await;
    let waiting = stage.key_of(0, None).await;
    let refused = post(&us.public(), "/v1/notes", &waiting, BODY).with("Demo-Behave", "status=429");
    stage.expect_status(refused, &[202]).await;
    certified(stage, &eu.name, 10 * DAY);
    certified(stage, &ap.name, DAY);
    for region in [eu, ap] {
        region.process().unwrap().hang_up();
    }
    stage.fires("OncewayCertificateExpiresSoon", &[("region", "ap-south"), ("of", "peer")]).await;
    let file = stage.fleet.dir().join("ap-south.toml");
    let right = fs::read_to_string(&file).unwrap();
    files::replace(stage.fleet.dir(), "ap-south.toml", &format!("drian = \"30s\"\n{right}")).unwrap();
    let instance = instance(&ap.gateways[0].admin());
    stage.fires("OncewayConfigNotCurrent", &[("region", "ap-south"), ("instance", &instance)]).await;
    files::replace(stage.fleet.dir(), "ap-south.toml", &right).unwrap();
    stage.quiet("OncewayConfigNotCurrent", &[]).await;
    for region in ["eu-west", "ap-south"] {
        stage.fires("OncewayCertificateExpires", &[("region", region), ("of", "peer")]).await;
    }
    stage.quiet("OncewayCertificateExpiresSoon", &[("region", "eu-west")]).await;
    stage.fires("OncewayDoubtsStay", &[("region", "us-east")]).await;
    ruled(stage, &keys).await;
    stage.fires("OncewayJobsWait", &[("region", "us-east")]).await;
    stage.operate(0, &["jobs", "drop", "acme", &waiting, "--reason", "nobody reads it"]).await;
    files::rotate(us.program(), stage.fleet.dir(), &[us.name.clone(), eu.name.clone(), ap.name.clone()])
        .unwrap();
    for name in
        ["OncewayDoubtsStay", "OncewayJobsWait", "OncewayCertificateExpires", "OncewayCertificateExpiresSoon"]
    {
        stage.quiet(name, &[]).await;
    }
}

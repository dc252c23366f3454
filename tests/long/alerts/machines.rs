//! Causes by machines and files: a dead gateway, lost rows, a sick upstream, a witness without a
//! vote, settings that differ, certificates that expire. Everything is mended before the next
//! group.

use crate::alerts::causes::{doubts, ruled};
use crate::alerts::stage::{Stage, instance};
use crate::gateways::Detour;
use crate::support::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

const DAY: Duration = Duration::from_secs(86_400);

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
    let detour = Detour::take(&stage.fleet, 0, 1).await;
    stage.quiet("OncewayGatewayRunsNothing", &[]).await;
    detour.way.freeze(Direction::Forward);
    let instance = instance(&us.gateways[1].admin());
    stage.fires("OncewayGatewayRunsNothing", &[("region", "us-east"), ("instance", &instance)]).await;
    let key = stage.key_of(0, None).await;
    stage.expect_status(post(&us.public(), "/v1/charges", &key, BODY), &[201]).await;
    detour.way.thaw(Direction::Forward);
    stage.quiet("OncewayGatewayRunsNothing", &[]).await;
    detour.end().await;
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

pub async fn upstream_sick(stage: &Stage) {
    stage.fleet.set_sick(1, true);
    stage.fires("OncewayUpstreamSick", &[("region", "eu-west")]).await;
    stage.fleet.set_sick(1, false);
    stage.quiet("OncewayUpstreamSick", &[]).await;
    stage.fleet.regions[1].serves().await.unwrap();
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
fn certified(stage: &Stage, region: &RegionName, life: Duration) {
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
    let [us, eu, ap] = &stage.fleet.regions[..] else { panic!("three regions") };
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
    let all = [
        "OncewayDoubtsStay",
        "OncewayJobsWait",
        "OncewayCertificateExpires",
        "OncewayCertificateExpiresSoon",
    ];
    stage.all_quiet(&all, &[]).await;
}

/// A witness beside the regions, whose ring does not name it, answers and has no vote.
pub async fn witness_without_vote(stage: &Stage) {
    const NAME: &str = "witness-1";
    let name = RegionName::parse(NAME).unwrap();
    certified(stage, &name, 30 * DAY);
    let dir = stage.fleet.dir().join(NAME);
    fs::create_dir(&dir).unwrap();
    let ring = fs::read_to_string(stage.fleet.dir().join("ring.toml")).unwrap();
    fs::write(dir.join("ring.toml"), format!("{ring}\n[[witness]]\nname = {NAME:?}\n")).unwrap();
    let certificates = stage.fleet.dir().join("certificates");
    let own = files_in(&certificates, &name);
    let base = ports::free_run(2).expect("two free ports");
    let admin = format!("127.0.0.1:{}", base + 1);
    let text = format!(
        "name = {NAME:?}\nring = \"ring.toml\"\nfile = \"witness.state\"\n[listen]\npeer = \"127.0.0.1:{base}\"\nadmin = {admin:?}\n\
         [peer]\ncertificate = {:?}\nkey = {:?}\nca = {:?}\n",
        own.certificate,
        own.key,
        certificates.join("ca.pem"),
    );
    fs::write(dir.join("witness.toml"), text).unwrap();
    let args = ["witness", "--config", "witness.toml"];
    let made = Command::new(program()).args(args).arg("--init").current_dir(&dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let witness = Process::spawn(&launch(program(), args, &dir, "witness.log")).unwrap();
    stage.prometheus.look_at_witness(Some((NAME, &admin)));
    stage.fires("OncewayWitnessHasNoVote", &[("region", NAME), ("instance", &admin)]).await;
    stage.prometheus.look_at_witness(None);
    stage.quiet("OncewayWitnessHasNoVote", &[]).await;
    witness.kill().await.unwrap();
}

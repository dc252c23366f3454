//! What machines and files do: a gateway that stands still, a slow store, a sick upstream, certificates that expire, a file that is wrong.
//!
//! Neighbours: `stage` looks, `losses` takes whole regions away. Everything is mended before the next group. It must not take a majority away.

use std::fs;
use std::time::Duration;

use onceway::adapters::identity::files_in;
use onceway::fleet::client::Ask;
use onceway::fleet::region::{Action, Part};
use onceway::fleet::{files, wait};
use onceway::protocol::region::RegionName;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::task::JoinSet;

use crate::requests::{doubts, ruled};
use crate::stage::{Stage, instance};
use crate::support::{BODY, PATIENCE, ask, post, program, until};

const DAY: Duration = Duration::from_secs(86_400);

/// One gateway of us-east is stopped (SIGSTOP) with requests in its hands; an operator, who finds them in doubt, says that nothing happened; then it
/// goes on and hears what did.
pub async fn stands_still(stage: &Stage) {
    let (us, still) = (&stage.fleet.regions[0], &stage.fleet.regions[0].gateways[0]);
    let (mut keys, mut asked) = (Vec::new(), JoinSet::new());
    for _ in 0..8 {
        let key = stage.key_of(0, None).await;
        let request = post(&still.public(), "/v1/payouts", &key, BODY).with("Demo-Behave", "slow=2500ms");
        asked.spawn(request.send_owned(PATIENCE));
        keys.push(key);
    }
    until("attempts to run", async || {
        let status = Ask::get(format!("{}/v1/status", still.admin())).send(PATIENCE).await.unwrap().json();
        status["in_flight"].as_u64() >= Some(4)
    })
    .await;
    us.act_on(0, Action::Pause).await.unwrap();
    let instance = instance(&still.admin());
    stage.fires("OncewayDown", &[("region", "us-east"), ("instance", &instance)]).await;
    let other = us.gateways[1].admin();
    let in_doubt = async || {
        let told = ask(Ask::get(format!("{other}/v1/doubts"))).await.text();
        keys.iter().filter(|key| told.contains(key.as_str())).collect::<Vec<_>>()
    };
    until("their hold to be over", async || in_doubt().await.len() >= 4).await;
    for key in in_doubt().await {
        let words = ["key", "release", "acme", key, "--reason", "the provider has none", "--admin", &other];
        let told = tokio::process::Command::new(program()).args(words).output().await.unwrap();
        assert!(told.status.success(), "{told:?}");
    }
    us.act_on(0, Action::Resume).await.unwrap();
    stage
        .fires("OncewayClaimsLost", &[("region", "us-east"), ("route", "payouts"), ("tenant", "acme")])
        .await;
    stage.fires("OncewayLateAnswers", &[("region", "us-east"), ("route", "payouts")]).await;
    asked.shutdown().await;
    stage.quiet("OncewayDown", &[("region", "us-east")]).await;
}

/// The upstream of eu-west fails its checks.
pub async fn upstream_sick(stage: &Stage) {
    stage.fleet.set_sick(1, true);
    stage.fires("OncewayUpstreamSick", &[("region", "eu-west")]).await;
    stage.fleet.set_sick(1, false);
    stage.quiet("OncewayUpstreamSick", &[]).await;
    stage.fleet.regions[1].serves().await.unwrap();
}

/// The disk of ap-south stands still for a moment, over and over: its Postgres is stopped and goes on.
pub async fn store_slow(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let stalls = async {
        loop {
            ap.act(Action::Pause, Part::Postgres).await.unwrap();
            wait::pause(Duration::from_millis(350)).await;
            ap.act(Action::Resume, Part::Postgres).await.unwrap();
            wait::pause(Duration::from_millis(350)).await;
        }
    };
    tokio::select! {
        () = stalls => {}
        alert = stage.fires("OncewayStoreSlow", &[("region", "ap-south")]) => {
            assert!(alert.labels.contains_key("op"), "{alert:?}");
        }
    }
    ap.act(Action::Resume, Part::Postgres).await.unwrap();
    stage.quiet("OncewayStoreSlow", &[("region", "ap-south")]).await;
    ap.serves().await.unwrap();
}

/// A certificate and key of this region under the fleet's authority, in place of those that are there.
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

/// The certificate of eu-west has ten days left, that of ap-south one; ap-south's file is broken besides; and keys in doubt are left alone.
pub async fn left_alone(stage: &Stage) {
    let [us, eu, ap] = [&stage.fleet.regions[0], &stage.fleet.regions[1], &stage.fleet.regions[2]];
    let keys = doubts(stage, 2).await;
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
    files::rotate(stage.fleet.dir(), &[us.name.clone(), eu.name.clone(), ap.name.clone()]).unwrap();
    for name in ["OncewayDoubtsStay", "OncewayCertificateExpires", "OncewayCertificateExpiresSoon"] {
        stage.quiet(name, &[]).await;
    }
}

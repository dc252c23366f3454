//! Planned work: maintenance, a new onceway, a minor upgrade of Postgres, new certificates, and a
//! new password under load. The minor upgrade restarts the same Postgres, as no other one is here.
//! The old onceway is this one, which speaks only the protocol version before.

use crate::runbook::book::{Section, metric};
use crate::support::*;

const SERVING: &str = "onceway_region_serving{member=\"eu-west\"}";

pub async fn maintenance(mut section: Section<'_>, fleet: &Deployment) {
    let eu = &fleet.regions[1];
    section.there(eu);
    section.well("onceway region drain eu-west --dry-run", &["Nothing was changed."]).await;
    metric(&fleet.regions[0], SERVING, "1").await;
    section.run_again("onceway region drain eu-west --reason").await.shows("eu-west is drained");
    section.run_until_all("onceway status --admin", &["drained: out until", "in flight  0"]).await;
    section.well("onceway jobs --admin", &["no accepted request waits"]).await;
    eu.act(Action::Stop, Part::Both).await.unwrap();
    eu.act(Action::Start, Part::Both).await.unwrap();
    section.run_again("onceway region resume eu-west").await.shows("serves again");
    section.well("until onceway region status eu-west", &["serving"]).await;
    for region in &fleet.regions {
        metric(region, SERVING, "1").await;
    }
    section.end();
}

pub async fn program_upgrade(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu, ap] = &fleet.regions[..] else { panic!("three regions") };
    let others = ["eu-west", "ap-south"];
    section.run_everywhere("onceway store init --config config/us-east.toml", "us-east", &others).await;
    section.run_again("onceway region drain eu-west --reason").await.shows("eu-west is drained");
    replace(eu, Some("1-2")).await;
    section.there(eu);
    section.run_until("onceway status --admin", "version 1, speaks 1-2").await;
    section.run_again("onceway region resume eu-west").await.shows("serves again");
    section.well("until onceway region status eu-west", &[]).await;
    for region in [us, ap] {
        replace(region, Some("1-2")).await;
        region.serves().await.unwrap();
    }
    section.well("onceway protocol raise  ", &["Nothing was changed."]).await;
    section.run_again("onceway protocol raise --yes").await.shows("protocol version 2 is in force");
    for region in &fleet.regions {
        metric(region, "onceway_protocol_version", "2").await;
        for peer in fleet.regions.iter().filter(|peer| peer.name != region.name) {
            metric(region, &format!("onceway_peer_foreign{{peer=\"{}\"}}", peer.name), "0").await;
        }
        region.serves().await.unwrap();
    }
    section.end();
}

pub async fn minor_upgrade(mut section: Section<'_>, fleet: &Deployment) {
    let eu = &fleet.regions[1];
    section.there(eu);
    section.run_again("onceway region drain eu-west --reason").await;
    section.well("psql --command checkpoint", &["CHECKPOINT"]).await;
    eu.act(Action::Stop, Part::Postgres).await.unwrap();
    eu.act(Action::Start, Part::Postgres).await.unwrap();
    section.run_until("onceway status --admin", "store      open").await;
    section.run_again("onceway store check --config config/eu-west.toml").await;
    section.run_again("onceway region resume eu-west").await;
    section.well("until onceway region status eu-west", &[]).await;
    section.end();
}

pub async fn certificates(mut section: Section<'_>, fleet: &Deployment) {
    let (eu, dir) = (&fleet.regions[1], fleet.dir());
    section.ask(eu);
    section.well("mkdir next && cp", &[]).await;
    section.well("onceway certs --out next --region eu-west", &["the authority that was there"]).await;
    section.well("openssl verify", &["OK"]).await;
    section.well("openssl x509 -in next/eu-west.pem", &["notAfter", "DNS:"]).await;
    let [desk, live] = [dir.join("desk"), dir.join("certificates")];
    let one = &fleet.regions[1..2];
    let old = dir.join("eu-west-before.pem");
    fs::copy(live.join("eu-west.pem"), &old).unwrap();
    let new = async || in_place(&desk.join("next"), &live, &["eu-west.pem", "eu-west.key"]);
    round(one, new).await;
    // The fleet's files have their addresses themselves.
    let environment = desk.join("environment");
    fs::write(&environment, "").unwrap();
    section.put("/etc/onceway/environment", environment.to_str().unwrap());
    let checked = section.run("(set -a; . /etc/onceway/environment; onceway check --strict --serve").await;
    checked.ends(&[0]).hides("No such file");
    section.well("onceway status ", &[]).await.hides("\nconfig ");
    fs::copy(&old, desk.join("old.pem")).unwrap();
    let is_revoked = ["eu-west is revoked (1 certificates are)"];
    round(&fleet.regions, async || drop(section.well("onceway certs revoke eu-west", &is_revoked).await))
        .await;
    section.end();
}

pub async fn authority(mut section: Section<'_>, fleet: &Deployment) {
    let (eu, dir) = (&fleet.regions[1], fleet.dir());
    let [desk, live] = [dir.join("desk"), dir.join("certificates")];
    section.well("onceway certs --out fresh --region us-east eu-west ap-south", &[]).await;
    section.well("cat certificates/ca.pem fresh/ca.pem > both.pem", &[]).await;
    let all = &fleet.regions;
    let trusts = |file: &str| _ = fs::copy(desk.join(file), live.join("ca.pem")).unwrap();
    round(all, async || trusts("both.pem")).await;
    let own = ["us-east", "eu-west", "ap-south"].map(|name| [format!("{name}.pem"), format!("{name}.key")]);
    round(all, async || in_place(&desk.join("fresh"), &live, own.as_flattened())).await;
    round(all, async || trusts("fresh/ca.pem")).await;
    // The signing key goes with the authority, for a later addition of a region.
    fs::copy(desk.join("fresh/ca.key"), live.join("ca.key")).unwrap();
    // New connections, with nothing but the new files.
    restart(eu).await;
    all_serve(fleet).await;
    section.well("onceway status", &[]).await;
    section.end();
}

/// A certificate that belongs to no region says what it may not, and is revoked.
pub async fn refused(mut section: Section<'_>, fleet: &Deployment) {
    let (us, identity) = (&fleet.regions[0], said::stranger(fleet));
    let ask = async || said::refusal(&identity, fleet, us).await;
    let before = "onceway_peer_refusals_total{sender=\"stranger\"}";
    metric(us, before, "0").await;
    let why = ask().await;
    assert!(why.contains("403"), "{why}");
    metric(us, before, "1").await;
    let log = fs::read_to_string(us.gateway_log()).unwrap();
    assert!(log.lines().any(|line| line.contains("a peer may not say this") && line.contains("mallory")));
    section.ask(us);
    section.well("onceway certs revoke mallory", &["mallory is revoked"]).await;
    until("its certificate to be refused", async || ask().await.contains("evoked")).await;
    section.well("onceway status", &[]).await;
    section.end();
}

fn in_place(from: &Path, to: &Path, names: &[impl AsRef<Path>]) {
    for name in names {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

async fn taken_over(regions: &[Region]) -> Vec<f64> {
    let mut all = Vec::new();
    for region in regions {
        all.push(series(region, "onceway_config_reloads_total{result=\"ok\"}").await.unwrap_or(0.0));
    }
    all
}

/// Changes files, and waits until these gateways have taken the change over and all peers answer.
pub async fn round(regions: &[Region], change: impl AsyncFnOnce()) {
    let before = taken_over(regions).await;
    change().await;
    until("the new files to be read", async || {
        let now = taken_over(regions).await;
        now.iter().zip(&before).all(|(now, before)| now > before)
    })
    .await;
    for region in regions {
        metric(region, "onceway_config_current", "1").await;
        region.serves().await.unwrap();
    }
}

pub async fn rotated(mut section: Section<'_>, fleet: &Deployment) {
    let (eu, one) = (&fleet.regions[1], &fleet.regions[1..2]);
    let file = fleet.dir().join(format!("{}.toml", eu.name));
    let hba = eu.cluster.data().join("pg_hba.conf");
    let own = fs::read_to_string(&file).unwrap();
    let admin = eu.cluster.connect(DATABASE).await.unwrap();
    let role =
        format!("set password_encryption = 'scram-sha-256'; alter role {GATEWAY_ROLE} password 'first'");
    admin.batch_execute(&role).await.unwrap();
    let open = ask_for_password(&eu.cluster, &admin, GATEWAY_ROLE).await;
    let secrets = fleet.dir().join("desk/secrets");
    let port = eu.cluster.port();
    let url = format!("postgres://{GATEWAY_ROLE}:first@127.0.0.1:{port}/{DATABASE}");
    fs::write(secrets.join("store-url"), url).unwrap();
    fs::write(secrets.join("gateway-password"), "first").unwrap();
    let plain = format!("url = \"postgres://{GATEWAY_ROLE}@127.0.0.1:{port}/{DATABASE}\"");
    assert!(own.contains(&plain), "{own}");
    let named = "\n[provision]\ngateway_password_file = \"desk/secrets/gateway-password\"";
    let filed = own.replace(&plain, "url_file = \"desk/secrets/store-url\"");
    round(one, async || fs::write(&file, filed.replace("\n[provision]", named)).unwrap()).await;
    uses_its_login(eu, 1).await;

    section.there(eu);
    let (over, done, public) = (AtomicBool::new(false), AtomicUsize::new(0), eu.public());
    let client = || charges(&public, &over, &done, "");
    let more = async || {
        let before = done.load(Ordering::SeqCst);
        until("more requests", async || done.load(Ordering::SeqCst) > before + 20).await;
    };
    let operator = async {
        more().await;
        section.run("(umask 077; openssl rand").await.ends(&[0]);
        section.run("(umask 077; sed").await.ends(&[0]);
        section.run("(umask 077; onceway store init").await.ends(&[0]);
        section.well("psql --file secrets/verifiers", &["ALTER ROLE"]).await;
        section.run_until("psql --command", "   0\n").await;
        uses_its_login(eu, 2).await;
        section.well("onceway status", &[]).await.hides("\nconfig ");
        more().await;
        over.store(true, Ordering::SeqCst);
    };
    let (a, b, c, d, ()) = tokio::join!(client(), client(), client(), client(), operator);
    for key in [a, b, c, d].concat() {
        assert_eq!(effects(&fleet.ledger, &key), 1, "{key}");
    }
    section.end();

    fs::write(&hba, &open).unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    round(one, async || fs::write(&file, &own).unwrap()).await;
}

async fn uses_its_login(region: &Region, times: usize) {
    until("the new login to be used", async || {
        let log = fs::read_to_string(region.gateway_log()).unwrap();
        log.matches("the store's new login is in use").count() >= times
    })
    .await;
}

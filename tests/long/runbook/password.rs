//! A new password of the gateways' role, under load: no request fails. The region's files and its
//! server are put back at the end.

use crate::runbook::book::Section;
use crate::runbook::planned::round;
use crate::support::*;

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

/// Waits until the gateway has taken a new login over so many times.
async fn uses_its_login(region: &Region, times: usize) {
    until("the new login to be used", async || {
        let log = fs::read_to_string(region.gateway_log()).unwrap();
        log.matches("the store's new login is in use").count() >= times
    })
    .await;
}

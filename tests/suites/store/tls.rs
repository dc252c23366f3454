//! TLS to Postgres, with real servers: trusted and refused certificates, the reasons, and
//! certificates that change. `adapters::postgres::address` has the words that are refused before.

use crate::store::provisioning::{line, pending};
use crate::store::support::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

/// An authority whose certificate is in a file, as operators have it.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = folder.join(format!("{name}.pem"));
        fs::write(&file, issuer.pem()).unwrap();
        Authority { issuer, file }
    }

    fn signs(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Shows a certificate for `localhost` from now on; `first` heads its pg_hba.conf.
async fn shows(region: &Region, authority: &Authority, first: &str) {
    let data = region.cluster.data();
    let owner = fs::metadata(&data).unwrap();
    let (certificate, key) = authority.signs("localhost");
    let hba = fs::read_to_string(data.join("pg_hba.conf")).unwrap();
    let put = |name: &str, text: &str| {
        let path = data.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    };
    put("server.crt", &certificate);
    put("server.key", &key);
    put("root.crt", &authority.issuer.pem());
    put("pg_hba.conf", &format!("{first}\n{hba}"));
    let admin = region.admin().await;
    admin.batch_execute("alter system set ssl_ca_file = 'root.crt'").await.unwrap();
    let loaded = "select current_setting('ssl') = 'on' and \
                  (select count(*) from pg_hba_file_rules) = $1 and pg_conf_load_time() > $2::timestamptz";
    let before: std::time::SystemTime = value(&admin, "select pg_conf_load_time()").await;
    alter_system(&admin, "set ssl = on").await;
    let rules: i64 = value(&admin, "select count(*) from pg_hba_file_rules").await;
    let taken = async || admin.query_one(loaded, &[&rules, &before]).await.unwrap().get::<_, bool>(0);
    until("the server to take its settings", taken).await;
}

fn store(region: &Region, address: &str) -> Result<PgStore, String> {
    let port = region.cluster.port();
    let address = format!("port={port} dbname={DATABASE} {address}").parse().unwrap();
    region.store_at(address).map_err(|error| error.to_string())
}

/// The gateway's error when it asks for its gate, or true if its connection is encrypted.
async fn asked(region: &Region, address: &str) -> Result<bool, String> {
    let store = store(region, address)?;
    store.gate().await.map_err(|error| error.to_string())?;
    encrypted(region, "gw").await.ok_or_else(|| "no connection".to_owned())
}

async fn encrypted(region: &Region, user: &str) -> Option<bool> {
    let sql = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where usename = $1";
    region.admin().await.query_one(sql, &[&user]).await.unwrap().get(0)
}

async fn end_connections(region: &Region) {
    let sql = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity where usename = 'gw'";
    region.admin().await.query(sql, &[]).await.unwrap();
}

#[track_caller]
fn refused(said: Result<bool, String>, why: &str) {
    let failure = said.unwrap_err();
    assert!(failure.contains(why) && !failure.contains('\n'), "{failure}");
}

#[tokio::test]
async fn a_gateway_trusts_only_the_right_server() {
    let folder = folder();
    let (right, other) = (Authority::new(folder.path(), "right"), Authority::new(folder.path(), "other"));
    let (region, plain, _gate) = Region::ready("eu#1").await;
    let verified = format!("host=localhost user=gw sslmode=verify-full sslrootcert={}", right.file.display());
    for text in ["host=localhost user=gw sslmode=require", &verified] {
        refused(asked(&region, text).await, "the server speaks no TLS");
    }
    assert_eq!(asked(&region, "host=localhost user=gw").await, Ok(false));

    let scram = "hostssl all secret 127.0.0.1/32 scram-sha-256\nhostssl all shown 127.0.0.1/32 trust clientcert=verify-ca";
    shows(&region, &right, scram).await;
    drop(plain);
    end_connections(&region).await;
    assert_eq!(asked(&region, &verified).await, Ok(true));
    assert_eq!(asked(&region, "host=127.0.0.1 user=gw sslmode=require").await, Ok(true));
    let elsewhere = verified.replace("localhost", "127.0.0.1");
    refused(asked(&region, &elsewhere).await, "certificate does not name the host");
    let stranger = verified.replace("right.pem", "other.pem");
    refused(asked(&region, &stranger).await, "of no authority that sslrootcert names");
    let absent = verified.replace("right.pem", "absent.pem");
    refused(asked(&region, &absent).await, "absent.pem: No such file");
    drop(other);

    let roles = "set password_encryption = 'scram-sha-256'; create role secret login password 'p' in role gw; \
                 create role shown login in role gw";
    region.admin().await.batch_execute(roles).await.unwrap();
    // The password proves the channel, too: with `require` only that keeps a man in the middle out.
    let bound = "host=localhost user=secret password=p sslmode=require channel_binding=require";
    let by_password = store(&region, bound).unwrap();
    by_password.gate().await.unwrap();
    assert_eq!(encrypted(&region, "secret").await, Some(true));

    let (certificate, key) = right.signs("shown");
    fs::write(folder.path().join("own.pem"), certificate).unwrap();
    fs::write(folder.path().join("own.key"), key).unwrap();
    let shown = verified.replace("user=gw", "user=shown");
    refused(asked(&region, &shown).await, "SQLSTATE 28000");
    let own = folder.path().join("own");
    let shown = format!("{shown} sslcert={0}.pem sslkey={0}.key", own.display());
    store(&region, &shown).unwrap().gate().await.unwrap();
}

#[tokio::test]
async fn a_changed_authority_applies_to_the_next_connection() {
    let folder = folder();
    let (old, new) = (Authority::new(folder.path(), "old"), Authority::new(folder.path(), "new"));
    let (region, plain, _gate) = Region::ready("eu#1").await;
    drop(plain);
    shows(&region, &old, "").await;
    let trusted = folder.path().join("trusted.pem");
    fs::copy(&old.file, &trusted).unwrap();
    let address = format!("host=localhost user=gw sslmode=verify-full sslrootcert={}", trusted.display());
    let store = store(&region, &address).unwrap();
    store.gate().await.unwrap();

    shows(&region, &new, "").await;
    store.gate().await.expect("a connection that stands goes on");
    end_connections(&region).await;
    until("a server that is not trusted to be refused", async || {
        let failure = store.gate().await.err().map(|error| error.to_string());
        failure.is_some_and(|failure| failure.contains("of no authority that sslrootcert names"))
    })
    .await;
    fs::write(&trusted, old.issuer.pem() + &new.issuer.pem()).unwrap();
    store.gate().await.expect("both are trusted now");
    fs::write(&trusted, "no certificate").unwrap();
    end_connections(&region).await;
    found("a connection with the authorities as they were", || async { store.gate().await.ok() }).await;
    assert_eq!(encrypted(&region, "gw").await, Some(true));
}

#[tokio::test]
async fn subscriptions_and_owners_verify_the_server_too() {
    let folder = folder();
    let (right, other) = (Authority::new(folder.path(), "right"), Authority::new(folder.path(), "other"));
    let (eu, us) = tokio::join!(Region::start("eu#1"), Region::start("us#1"));
    shows(&eu, &right, "hostnossl all repl 127.0.0.1/32 reject").await;
    let (mut eu_plan, mut plan) = (eu.plan(&[], &["us#1"]), us.plan(&[&eu], &[]));
    let verified = format!("sslmode=verify-full sslrootcert={}", right.file.display());
    let owner = |host: &str| {
        let port = eu.cluster.port();
        format!("host={host} port={port} user=postgres dbname={DATABASE} {verified}").parse().unwrap()
    };
    eu_plan.admin = owner("localhost");
    whole(&init(&eu_plan).await);
    eu_plan.admin = owner("127.0.0.1");
    let unknown = provision::check(&eu_plan).await.unwrap_err();
    let Error::Unreachable { why, .. } = &unknown else { panic!("{unknown}") };
    assert!(why.contains("does not name the host"), "{unknown}");

    let link = "subscription from eu#1";
    let address =
        |host: &str| format!("host={host} port={} user=repl dbname={DATABASE} {verified}", eu.cluster.port());
    plan.subscribe[0].1 = address("127.0.0.1");
    init(&plan).await;
    pending(&init(&plan).await, link, "cannot look at eu#1: the server's certificate does not name");
    plan.subscribe[0].1 = address("localhost");
    init_until_complete(&plan).await;
    assert_eq!(line(&check(&plan).await, link), &Status::Fine);
    assert_eq!(encrypted(&eu, "repl").await, Some(true), "the subscription's own connection");

    // The path is the other machine's: here the authorities may be elsewhere.
    plan.publishers_ca = Some(other.file.clone());
    pending(&check(&plan).await, link, "of no authority");
    plan.publishers_ca = Some(right.file.clone());
    assert_eq!(line(&check(&plan).await, link), &Status::Fine);
}

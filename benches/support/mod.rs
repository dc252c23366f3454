//! A private Postgres, the store of one region in it, and claims of fresh keys, for both benches.
//!
//! It must not measure.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use onceway::adapters::postgres::provision::{self, Plan, Role};
use onceway::adapters::postgres::{PgStore, StoreConfig};
use onceway::fleet::binaries::Binaries;
use onceway::fleet::cluster::Cluster;
use onceway::ports::KeyStore;
use onceway::ports::contract::store;
use onceway::ports::store::{ClaimAsk, GateVersion};
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::region::Origin;

pub const DATABASE: &str = "bench";

/// Starts a Postgres below this folder, with an empty database.
pub async fn started(dir: &Path) -> Result<Cluster> {
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let binaries = tokio::task::spawn_blocking(Binaries::find_or_install).await??;
    let port = onceway::fleet::ports::free_run(1)?;
    let cluster = Cluster::create(&binaries, &dir.join("pg"), port, &[]).await?;
    cluster.start().await?;
    cluster.create_database(DATABASE).await?;
    Ok(cluster)
}

/// Makes the store of `here#1` beside those origins, and opens its gate.
pub async fn opened(cluster: &Cluster, others: &[&str], connections: usize) -> Result<Arc<PgStore>> {
    let origin = |text: &str| Origin::parse(text).ok().context("an origin");
    let me = origin("here#1")?;
    let others = others.iter().map(|other| origin(other));
    let plan = Plan {
        me: me.clone(),
        all: std::iter::once(Ok(me.clone())).chain(others).collect::<Result<_>>()?,
        deployment: "bench".to_owned(),
        gateway_role: Role { name: "gw".to_owned(), password: None },
        replication_role: Role { name: "repl".to_owned(), password: None },
        admin: cluster.url(DATABASE).parse()?,
        subscribe: Vec::new(),
        publishers_ca: None,
        migrations: provision::MIGRATIONS,
    };
    provision::init(&plan).await?;
    let address = format!("host=127.0.0.1 port={} user=gw dbname={DATABASE}", cluster.port()).parse()?;
    let store = PgStore::new(&StoreConfig { connections, ..StoreConfig::new(me, address) })?;
    let gate = store.gate().await?;
    store.approve(gate.version, &gate.running).await?;
    Ok(Arc::new(store))
}

pub fn asked(number: u64, gate: GateVersion) -> Result<ClaimAsk> {
    let key = Key::parse(&format!("{:016x}-{number}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))?;
    let id = KeyId::new(Tenant::parse("acme")?, key);
    Ok(store::asked(&id, u128::from(number), gate))
}

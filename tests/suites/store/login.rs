//! A role's password, and the role, change while calls run: none fails, and connections with the
//! old login go. The server asks all roles for passwords here, except its superuser.

use crate::store::support::*;

/// Calls at once, at first. More need new connections.
const FEW: u64 = 2;
const MANY: u64 = 12;

async fn region() -> Region {
    let (region, store, _) = Region::ready("eu#1").await;
    drop(store);
    password(&region, "old").await;
    let admin = region.admin().await;
    let roles =
        "create role next login password 'next' in role gw; create role stranger login password 'old'";
    admin.batch_execute(roles).await.unwrap();
    ask_for_password(&region.cluster, &admin, "gw,next,stranger").await;
    let asks = async || login_error(&region, "wrong").await.contains("SQLSTATE 28P01");
    until("the server to ask for passwords", asks).await;
    region
}

async fn password(region: &Region, password: &str) {
    let sql = format!("set password_encryption = 'scram-sha-256'; alter role gw password '{password}'");
    region.admin().await.batch_execute(&sql).await.unwrap();
}

fn address(region: &Region, role: &str, password: &str) -> Address {
    let port = region.cluster.port();
    format!("host=127.0.0.1 port={port} user={role} password={password} dbname={DATABASE}").parse().unwrap()
}

fn store(region: &Region, role: &str, password: &str) -> Arc<PgStore> {
    Arc::new(region.store_at(address(region, role, password)).unwrap())
}

/// The answer to a store with this password: empty if it is the right one.
async fn login_error(region: &Region, password: &str) -> String {
    let asked = store(region, "gw", password).gate().await;
    asked.err().map(|error| error.to_string()).unwrap_or_default()
}

async fn processes(region: &Region, role: &str) -> BTreeSet<i32> {
    let sql = "select pid from pg_stat_activity where usename = $1";
    let found = region.admin().await.query(sql, &[&role]).await.unwrap();
    found.iter().map(|row| row.get(0)).collect()
}

async fn none_of(region: &Region, old: &BTreeSet<i32>) {
    until("the old connections to go", async || {
        let now = processes(region, "gw").await;
        !now.is_empty() && now.is_disjoint(old)
    })
    .await;
}

/// Calls that go on until they are told to stop. Each must succeed.
struct Load {
    store: Arc<PgStore>,
    gate: GateVersion,
    over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    running: JoinSet<()>,
}

impl Load {
    fn new(store: &Arc<PgStore>, gate: GateVersion) -> Self {
        let (store, running) = (store.clone(), JoinSet::new());
        Self { store, gate, over: Arc::default(), done: Arc::default(), running }
    }

    /// Adds callers: each claims keys, reads them and commits heartbeats, one call at a time.
    fn add(&mut self, callers: std::ops::Range<u64>) {
        for caller in callers {
            let (store, gate) = (self.store.clone(), self.gate);
            let (over, done) = (self.over.clone(), self.done.clone());
            self.running.spawn(async move {
                for number in 1_u32.. {
                    let key = format!("{caller}-{number}");
                    won(&store, &ask(&key, u128::from(caller) << 32 | u128::from(number), gate)).await;
                    assert_eq!(store.look_up(&[id(&key)]).await.unwrap()[0].len(), 1, "{key}");
                    store.beat(None).await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
    }

    /// Waits until so many more rounds are done. A call that failed ends the test.
    async fn goes_on(&mut self, rounds: u64) {
        let wanted = self.done.load(Ordering::SeqCst) + rounds;
        let go_on = async || self.done.load(Ordering::SeqCst) >= wanted || self.running.is_empty();
        until("calls to go on", go_on).await;
        while let Some(ended) = self.running.try_join_next() {
            ended.expect("no call fails");
        }
    }

    async fn end(mut self) {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.running.join_next().await {
            ended.expect("no call fails");
        }
    }
}

#[tokio::test]
async fn a_password_changes_under_load_and_no_call_fails() {
    let region = region().await;
    let store = store(&region, "gw", "old");
    let gate = open(&store).await;
    let mut load = Load::new(&store, gate.version);
    load.add(0..FEW);
    load.goes_on(20).await;
    let old = processes(&region, "gw").await;
    assert!(!old.is_empty());

    // First the password, then the file. Between them, new connections are refused.
    password(&region, "new").await;
    assert!(login_error(&region, "old").await.contains("SQLSTATE 28P01"));
    load.add(FEW..MANY);
    load.goes_on(100).await;
    assert!(processes(&region, "gw").await.is_subset(&old), "only connections that stood before");
    store.login().renew(address(&region, "gw", "new"));
    none_of(&region, &old).await;
    load.goes_on(100).await;

    // First the file, then the password: it is tried until it is right.
    let old = processes(&region, "gw").await;
    store.login().renew(address(&region, "gw", "newest"));
    load.goes_on(100).await;
    assert!(store.login().address() == address(&region, "gw", "new"));
    assert!(!processes(&region, "gw").await.is_disjoint(&old), "the connections stay");
    password(&region, "newest").await;
    let used = async || store.login().address() == address(&region, "gw", "newest");
    until("the new password to be used", used).await;
    none_of(&region, &old).await;
    load.goes_on(100).await;
    load.end().await;
}

#[tokio::test]
async fn a_role_without_rights_is_never_used() {
    let region = region().await;
    let store = store(&region, "gw", "old");
    let gate = open(&store).await;
    let mut load = Load::new(&store, gate.version);
    load.add(0..FEW);
    load.goes_on(10).await;
    store.login().renew(address(&region, "stranger", "old"));
    load.goes_on(100).await;
    assert!(store.login().address() == address(&region, "gw", "old"));
    // Another wish ends the first one, which is not taken over any more.
    store.login().renew(address(&region, "next", "next"));
    let moved =
        async || processes(&region, "gw").await.is_empty() && !processes(&region, "next").await.is_empty();
    until("the other role to be used", moved).await;
    region.admin().await.batch_execute("grant gw to stranger").await.unwrap();
    load.goes_on(100).await;
    assert!(store.login().address() == address(&region, "next", "next"));
    load.end().await;
}

#[tokio::test]
async fn a_store_recovers_from_a_wrong_first_password() {
    let region = region().await;
    let store = store(&region, "gw", "wrong");
    let why = store.gate().await.unwrap_err().to_string();
    assert!(why.contains("SQLSTATE 28P01: the password is wrong"), "{why}");
    store.login().renew(address(&region, "gw", "old"));
    found("the gate", || async { store.gate().await.ok() }).await;
}

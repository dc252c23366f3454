//! Shared parts of the store's tests: a private Postgres, which dies with its value, a plan, and
//! requests to claim.

pub use crate::support::*;
pub use onceway::adapters::postgres::address::Address;
pub use onceway::adapters::postgres::provision::Role;
pub use onceway::adapters::postgres::provision::{self, Error, Plan, Report, Status};
pub use onceway::adapters::postgres::{PgStore, StoreConfig};
pub use onceway::ports::authority::Lodged;
pub use onceway::ports::jobs::Acted;
pub use onceway::ports::store::{
    Attempt, ClaimAsk, ClaimReply, Gate, GateVersion, StoreError, Terms, Unclear, Written,
};
pub use onceway::ports::{Authority, Escrows, Imports, Jobs, Upkeep};
pub use onceway::protocol::authority::GateState;
use onceway::protocol::fingerprint::{self, Fingerprint};
use onceway::protocol::lifetime::{Lifetime, Retention};
pub use onceway::protocol::record::Basis;
use onceway::protocol::record::Row;
pub use onceway::protocol::record::{Answer, AnswerBody, State};
pub use onceway::protocol::ring::Ring;
pub use onceway::protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
pub use onceway::protocol::view::{AcceptorId, View};
use onceway_lab::contract::store::asked;
use tokio_postgres::NoTls;
use tokio_postgres::types::FromSql;

pub const DATABASE: &str = "shop";
pub const HOLD: Duration = Duration::from_secs(60);
pub const RETENTION: Duration = Duration::from_secs(86_400);
const LONG: Duration = Duration::from_secs(20);

pub struct Region {
    pub origin: Origin,
    pub cluster: Cluster,
    _dir: TempDir,
}

impl Region {
    pub async fn start(origin: &str) -> Region {
        let _room = room(1).await;
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let port = onceway_lab::ports::free_run(1).unwrap();
        let cluster = postgres(&dir.path().join("pg"), port, &[]).await;
        cluster.create_database(DATABASE).await.unwrap();
        Region { origin: self::origin(origin), cluster, _dir: dir }
    }

    pub fn plan(&self, peers: &[&Region], others: &[&str]) -> Plan {
        let others = others.iter().map(|name| origin(name));
        let all = std::iter::once(self.origin.clone())
            .chain(peers.iter().map(|peer| peer.origin.clone()))
            .chain(others)
            .collect();
        Plan {
            me: self.origin.clone(),
            all,
            deployment: "test".to_owned(),
            gateway_role: Role { name: "gw".to_owned(), password: None },
            replication_role: Some(Role { name: "repl".to_owned(), password: None }),
            admin: self.cluster.url(DATABASE).parse().unwrap(),
            subscribe: peers.iter().map(|peer| (peer.origin.clone(), peer.conninfo())).collect(),
            publishers_ca: None,
            migrations: provision::MIGRATIONS,
        }
    }

    pub fn conninfo(&self) -> String {
        format!("host=127.0.0.1 port={} user=repl dbname={DATABASE}", self.cluster.port())
    }

    pub fn store(&self) -> PgStore {
        self.store_within(LONG)
    }

    pub fn store_within(&self, within: Duration) -> PgStore {
        self.store_of(8, within)
    }

    pub fn store_of(&self, connections: usize, statement_within: Duration) -> PgStore {
        let usual = StoreConfig::new(self.origin.clone(), self.as_gateway().parse().unwrap());
        PgStore::new(&StoreConfig { connections, statement_within, ..usual }).unwrap()
    }

    /// A store at this address, as a gateway's file may have it.
    pub fn store_at(&self, address: Address) -> anyhow::Result<PgStore> {
        let usual = StoreConfig::new(self.origin.clone(), address);
        Ok(PgStore::new(&StoreConfig { statement_within: LONG, ..usual })?)
    }

    pub fn as_gateway(&self) -> String {
        format!("host=127.0.0.1 port={} user=gw dbname={DATABASE}", self.cluster.port())
    }

    pub async fn gateway_client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.as_gateway(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub async fn admin(&self) -> Client {
        self.cluster.connect(DATABASE).await.unwrap()
    }

    /// Restarts the server as a standby, and promotes it.
    pub async fn promote(&self) {
        self.cluster.stop(Duration::from_secs(30)).await.unwrap();
        fs::write(self.cluster.data().join("standby.signal"), "").unwrap();
        self.cluster.start().await.unwrap();
        assert!(value::<bool>(&self.admin().await, "select pg_promote()").await);
    }

    /// A row of the other origin, due in an hour, with a tombstone of a day.
    pub async fn arrives(&self, key: &str, state: i16, attempt: i32) {
        let sql = "insert into onceway.records (tenant, key, origin, state, epoch, attempt, nonce, fp_raw, request_id, held_at, held_ms, hold_ms, \
                       settle_ms, recovery, expires_at, due_ms, tombstone_ms, answer_status, answer_headers, settled_at) \
                   select 'acme', $1, 'other#1', s, 1, $3, gen_random_uuid(), sha256(''), gen_random_uuid(), now(), 0, 3600000, \
                       0, 0, now(), 3600000, 86400000, case s when 4 then 200 end, \
                       case s when 4 then '\\x01'::bytea end, case s when 4 then now() end from (values ($2::smallint)) v (s)";
        self.admin().await.execute(sql, &[&key.as_bytes(), &state, &attempt]).await.unwrap();
    }

    pub fn psql(&self, role: &str) -> Command {
        let program = Binaries::find_or_install().unwrap().postgres().with_file_name("psql");
        let mut psql = Command::new(program);
        psql.args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--host", "127.0.0.1"]);
        psql.args(["--port", &self.cluster.port().to_string(), "--username", role, "--dbname", DATABASE]);
        psql
    }

    /// A provisioned store whose boot is approved, in a deployment with one more origin.
    pub async fn ready(origin: &str) -> (Region, PgStore, Gate) {
        let region = Region::start(origin).await;
        whole(&init(&region.plan(&[], &["other#1"])).await);
        let store = region.store();
        let gate = open(&store).await;
        (region, store, gate)
    }
}

pub async fn init(plan: &Plan) -> Report {
    provision::init(plan).await.unwrap()
}

pub async fn check(plan: &Plan) -> Report {
    provision::check(plan).await.unwrap()
}

#[track_caller]
pub fn whole(report: &Report) {
    assert!(report.is_complete(), "{report}");
}

#[track_caller]
pub fn done(written: Result<Written, StoreError>) {
    assert_eq!(written, Ok(Written::Done));
}

pub async fn value<T: for<'a> FromSql<'a>>(client: &Client, sql: &str) -> T {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

pub async fn open(store: &PgStore) -> Gate {
    let gate = store.gate().await.unwrap();
    done(store.approve(gate.version, &gate.running).await);
    let gate = store.gate().await.unwrap();
    assert!(gate.is_open());
    gate
}

/// Commits a heartbeat. Returns its number.
pub async fn seq(store: &PgStore) -> Option<u64> {
    store.beat(None).await.unwrap().map(|beat| beat.seq)
}

pub fn origin(name: &str) -> Origin {
    Origin::parse(name).unwrap()
}

pub fn view_of_one(name: &RegionName, epoch: u64) -> View {
    let regions = vec![RegionSpec { name: name.clone(), weight: 1 }];
    let spec = RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() };
    let voters = BTreeMap::from([(name.clone(), AcceptorId(1))]);
    View::founding(epoch, Arc::new(Ring::build(&spec).unwrap()), BTreeMap::new(), voters)
}

/// A life that ends with its retention, for a tombstone of this length.
pub fn lifetime(retention: Duration, tombstone: Duration) -> Lifetime {
    Lifetime { retention: Retention::For(retention), skew: Duration::ZERO, tombstone }
}

pub fn id(key: &str) -> KeyId {
    KeyId::new(Tenant::parse("acme").unwrap(), Key::parse(key).unwrap())
}

pub fn print(body: &str) -> Fingerprint {
    Fingerprint { raw: fingerprint::raw("POST", "/", body.as_bytes()), canonical: None }
}

pub fn ask(key: &str, nonce: u128, gate: GateVersion) -> ClaimAsk {
    let ask = asked(&id(key), nonce, gate);
    let terms = Terms {
        fingerprint: print("body"),
        hold: HOLD,
        lifetime: lifetime(RETENTION, RETENTION),
        route: "test".into(),
        path: "/v1/test".to_owned(),
        ..ask.terms
    };
    ClaimAsk { terms, ..ask }
}

/// A first attempt at most, own or of nobody here.
pub fn known(own: Option<&Attempt>) -> Basis {
    Basis::Known { own: own.map(|own| (own.token, own.nonce)), over: Vec::new(), attempt: 1 }
}

pub async fn won(store: &PgStore, ask: &ClaimAsk) -> Attempt {
    match store.claim(ask).await.unwrap() {
        ClaimReply::Won { token, .. } => attempt(&ask.id, token, ask.terms.nonce),
        other => panic!("not won: {other:?}"),
    }
}

pub fn attempt(id: &KeyId, token: Token, nonce: Nonce) -> Attempt {
    Attempt { id: id.clone(), token, nonce }
}

pub fn answer() -> Answer {
    Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(b"made".to_vec()) }
}

pub async fn only_row(store: &PgStore, key: &str) -> Row {
    let mut rows = store.look_up(&[id(key)]).await.unwrap();
    let mut rows = rows.pop().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.pop().unwrap()
}

pub async fn init_until_complete(plan: &Plan) -> Report {
    found("provisioning", || async {
        let report = init(plan).await;
        assert!(!report.is_broken(), "{report}");
        report.is_complete().then_some(report)
    })
    .await
}

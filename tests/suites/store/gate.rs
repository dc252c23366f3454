//! Changes of the gate among statements that rely on it, over a real Postgres: the waits and the
//! refusals. A trigger stops a statement after it has read the gate and before it writes, or the
//! statement meets a change that is not committed.

use crate::store::authority::{lodging, other, state, waits};
use crate::store::jobs::request;
use crate::store::support::*;
use onceway::ports::jobs;
use onceway::ports::store::Attempt;
use onceway::ports::upkeep::{Act, Ruling};
use std::cell::Cell;
use std::fmt::Debug;

/// As a migration that closes older gateways: another version, and no approved boot.
const REPLACED: &str = "update onceway.gate set version = version + 1, boot_started = 'epoch'";

macro_rules! statements {
    ($($name:ident)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Statement {
            $($name),+
        }

        const ALL: &[Statement] = &[$(Statement::$name),+];
    };
}

statements! {
    Claim ReclaimOfOwn ReclaimBesideOthers Accept Settle Doubt Release SettleByHand ReleaseByHand
    Discard Lodge Convert Import Beat StandIn Reap ReapEscrows ReapImports
}

struct Bench {
    region: Region,
    store: PgStore,
    admin: Client,
}

struct Ready {
    gate: GateVersion,
    key: String,
    attempt: Option<Attempt>,
}

impl Bench {
    async fn start() -> Bench {
        let (region, store, _gate) = Region::ready("eu#1").await;
        let admin = region.admin().await;
        Bench { region, store, admin }
    }

    /// Opens the gate, and prepares the rows that the statement needs.
    async fn prepared(&self, statement: Statement, turn: u128) -> Ready {
        let mut gate = self.store.gate().await.unwrap();
        if !gate.is_open() {
            gate = open(&self.store).await;
        }
        let (gate, key) = (gate.version, format!("{statement:?}-{turn}"));
        let asked = ask(&key, turn, gate);
        let attempt = match statement {
            Statement::ReclaimOfOwn => {
                let attempt = won(&self.store, &asked).await;
                done(self.store.release(&attempt).await);
                Some(attempt)
            }
            Statement::Settle | Statement::Doubt | Statement::Release => Some(won(&self.store, &asked).await),
            Statement::SettleByHand | Statement::ReleaseByHand => {
                let attempt = won(&self.store, &asked).await;
                let unclear = Unclear { status: 500, ends_attempt: true, excerpt: None };
                done(self.store.doubt(&attempt, Some(unclear)).await);
                Some(attempt)
            }
            Statement::Reap => {
                let terms = Terms { lifetime: lifetime(Duration::ZERO, RETENTION), ..asked.terms };
                let attempt = won(&self.store, &ClaimAsk { terms, ..asked }).await;
                done(self.store.settle(&attempt, &answer()).await);
                Some(attempt)
            }
            Statement::ReclaimBesideOthers | Statement::StandIn | Statement::Import => {
                self.region.arrives(&key, 3, 1).await;
                None
            }
            Statement::ReapEscrows => {
                self.lodged(&key, turn, gate).await;
                self.due(
                    "update onceway.escrows set due_ms = 0, tombstone_ms = 0, look_ms = 0 where key = $1",
                    &key,
                )
                .await;
                None
            }
            Statement::ReapImports => {
                self.region.arrives(&key, 3, 1).await;
                let rows = self.store.rows_of(&other(), None, 100).await.unwrap();
                let rows: Vec<_> = rows.into_iter().filter(|row| row.id == id(&key)).collect();
                self.store.import(&other(), &rows).await.unwrap();
                self.due("update onceway.records_imported set due_ms = 0 where key = $1", &key).await;
                None
            }
            Statement::Discard => {
                let accepted = self.store.accept(&asked, &request(), RETENTION).await;
                assert!(matches!(accepted, Ok(ClaimReply::Won { .. })), "{accepted:?}");
                None
            }
            Statement::Convert => {
                self.lodged(&key, turn, gate).await;
                None
            }
            Statement::Claim | Statement::Accept | Statement::Lodge | Statement::Beat => None,
        };
        Ready { gate, key, attempt }
    }

    async fn due(&self, sql: &str, key: &str) {
        assert_eq!(self.admin.execute(sql, &[&key.as_bytes()]).await.unwrap(), 1);
    }

    async fn lodged(&self, key: &str, turn: u128, gate: GateVersion) {
        assert_eq!(self.store.lodge(&lodging(key, turn), gate).await, Ok(Lodged::Done));
    }

    async fn passes(&self, statement: Statement, ready: &Ready, turn: u128) -> bool {
        let (store, gate) = (&self.store, ready.gate);
        let asked = ask(&ready.key, turn, gate);
        let attempt = || ready.attempt.as_ref().unwrap();
        let by_hand = async |ruling| {
            let act = Act { ruling, actor: "somebody".to_owned(), reason: "because".to_owned() };
            written(store.rule(attempt(), &act).await)
        };
        match statement {
            Statement::Claim => claimed(store.claim(&asked).await),
            Statement::ReclaimOfOwn => {
                let basis = known(Some(attempt()));
                claimed(store.claim(&ClaimAsk { basis, ..ask(&ready.key, turn + 1_000, gate) }).await)
            }
            Statement::ReclaimBesideOthers => {
                claimed(store.claim(&ClaimAsk { basis: known(None), ..asked }).await)
            }
            Statement::Accept => claimed(store.accept(&asked, &request(), RETENTION).await),
            Statement::Settle => written(store.settle(attempt(), &answer()).await),
            Statement::Doubt => written(store.doubt(attempt(), None).await),
            Statement::Release => written(store.release(attempt()).await),
            Statement::SettleByHand => by_hand(Ruling::Settled(answer())).await,
            Statement::ReleaseByHand => by_hand(Ruling::Released).await,
            Statement::Discard => {
                let act = jobs::Act { actor: "somebody".to_owned(), reason: "because".to_owned() };
                one_of(store.discard(&id(&ready.key), &act).await, Acted::Done, Acted::GateMoved)
            }
            Statement::Lodge => {
                one_of(store.lodge(&lodging(&ready.key, turn), gate).await, Lodged::Done, Lodged::GateMoved)
            }
            Statement::Convert => approved(store.convert(&other(), 10).await),
            Statement::Import => {
                let rows = store.rows_of(&other(), None, 100).await.unwrap();
                approved(store.import(&other(), &rows).await)
            }
            Statement::Beat => store.beat(None).await.unwrap().is_some(),
            Statement::StandIn => {
                let terms = Terms { hold: Duration::ZERO, ..asked.terms };
                let ask = ClaimAsk { basis: known(None), terms, ..asked };
                written(store.stand_in(&ask, &Ruling::Released, None).await)
            }
            Statement::Reap => store.reap(100, None).await.unwrap().seen() > 0,
            Statement::ReapEscrows => store.reap_escrows(100).await.unwrap() > 0,
            Statement::ReapImports => store.reap_imports(100).await.unwrap() > 0,
        }
    }

    async fn written(&self) -> String {
        let tables = ["records", "escrows", "heartbeats", "jobs", "doubts", "journal"];
        let all = tables.map(|table| format!("select t::text from onceway.{table} t")).join(" union all ");
        let sql = format!("select coalesce(string_agg(t, '\n' order by t), '') from ({all}) s");
        self.admin.query_one(&sql, &[]).await.unwrap().get(0)
    }

    async fn a_session_waits(&self, role: &str) -> bool {
        let sql = "select exists (select from pg_stat_activity where usename = $1 and pid <> pg_backend_pid() \
                   and wait_event_type = 'Lock')";
        self.admin.query_one(sql, &[&role]).await.unwrap().get(0)
    }
}

fn claimed(reply: Result<ClaimReply, StoreError>) -> bool {
    match reply.unwrap() {
        ClaimReply::Won { .. } => true,
        ClaimReply::GateMoved => false,
        ClaimReply::Found(rows) => panic!("{rows:?}"),
    }
}

fn written(written: Result<Written, StoreError>) -> bool {
    one_of(written, Written::Done, Written::GateMoved)
}

/// True if it was done, and false if the gate had moved.
fn one_of<T: PartialEq + Debug>(outcome: Result<T, StoreError>, done: T, moved: T) -> bool {
    let outcome = outcome.unwrap();
    assert!(outcome == done || outcome == moved, "{outcome:?}");
    outcome == done
}

fn approved<T>(done: Result<T, StoreError>) -> bool {
    match done {
        Ok(_) => true,
        Err(StoreError::Definite(why)) if why.contains("not approved") => false,
        Err(other) => panic!("{other}"),
    }
}

/// Each statement is stopped between the gate's read and its first write, and the gate is replaced.
/// The change must wait until the statement is committed, or its rows under the old gate would come
/// after the change.
#[tokio::test]
async fn a_gate_change_waits_for_statements_under_way() {
    let bench = Bench::start().await;
    let (stop, changer) = (bench.region.admin().await, bench.region.admin().await);
    let tables = ["records_eu_g1", "records_imported", "escrows", "heartbeats_eu_g1", "jobs"];
    let stops = tables.map(|table| {
        format!(
            "create trigger stops before insert or update or delete on onceway.{table} for each row \
             when (current_user = 'gw') execute function stops.here();"
        )
    });
    let here = "create schema stops; create function stops.here() returns trigger language plpgsql as $$ begin \
                perform pg_advisory_xact_lock_shared(77); return coalesce(new, old); end $$;";
    stop.batch_execute(&format!("{here} {}", stops.concat())).await.unwrap();
    let mut overtaken = Vec::new();
    for (&statement, turn) in ALL.iter().zip(1..) {
        let ready = bench.prepared(statement, turn).await;
        stop.execute("select pg_advisory_lock(77)", &[]).await.unwrap();
        let change = async {
            until("it to stop", async || bench.a_session_waits("gw").await).await;
            let done = Cell::new(false);
            let replaced = async {
                changer.execute(REPLACED, &[]).await.unwrap();
                done.set(true);
            };
            let go_on = async {
                let waits =
                    || async { (done.get() || bench.a_session_waits("postgres").await).then_some(()) };
                found("the change to wait, or not", waits).await;
                let overtook = done.get();
                stop.execute("select pg_advisory_unlock(77)", &[]).await.unwrap();
                overtook
            };
            tokio::join!(replaced, go_on).1
        };
        let (passed, overtook) = tokio::join!(bench.passes(statement, &ready, turn), change);
        assert!(passed, "{statement:?} came first");
        overtaken.extend(overtook.then_some(statement));
    }
    assert_eq!(overtaken, [], "they were committed after a change, under the gate of before");
}

/// The reverse: a statement waits for an open change, reads its gate, and writes nothing.
#[tokio::test]
async fn each_statement_waits_for_a_change_and_reads_it() {
    let bench = Bench::start().await;
    let mut changer = bench.region.admin().await;
    let mut passed = Vec::new();
    for (&statement, turn) in ALL.iter().zip(1..) {
        let ready = bench.prepared(statement, turn).await;
        let before = bench.written().await;
        let held = changer.transaction().await.unwrap();
        held.execute(REPLACED, &[]).await.unwrap();
        let done = Cell::new(false);
        let asked = async {
            let passed = bench.passes(statement, &ready, turn).await;
            done.set(true);
            passed
        };
        let commit = async {
            let waits = || async { (done.get() || bench.a_session_waits("gw").await).then_some(()) };
            found("it to wait, or not", waits).await;
            held.commit().await.unwrap();
        };
        let (through, ()) = tokio::join!(asked, commit);
        if through || bench.written().await != before {
            passed.push(statement);
        }
    }
    assert_eq!(passed, [], "they wrote under a gate that was being replaced");
}

/// A claim that comes after a change waits behind it, even if the change itself waits for a claim
/// that would let this one through. Otherwise some claim is always on its way, and the change never
/// gets its turn.
#[tokio::test]
async fn a_change_goes_before_claims_that_come_later() {
    let bench = Bench::start().await;
    let gate = bench.store.gate().await.unwrap();
    let mut slow = bench.region.gateway_client().await;
    let held = slow.transaction().await.unwrap();
    held.execute("select onceway.hold_gate($1)", &[&1_i64]).await.unwrap();
    let (state, asked) = (state(2), ask("later", 1, gate.version));
    let later = async {
        waits(&bench.admin, "update onceway.gate").await;
        let claim = async { (bench.store.claim(&asked).await, bench.store.gate().await.unwrap().version) };
        let commit = async {
            waits(&bench.admin, "onceway.claim").await;
            held.commit().await.unwrap();
        };
        tokio::join!(claim, commit).0
    };
    let (changed, (claim, version)) = tokio::join!(bench.store.set_gate(gate.version, &state), later);
    assert_eq!((changed, claim), (Ok(Written::Done), Ok(ClaimReply::GateMoved)));
    assert!(version > gate.version);
    won(&bench.store, &ask("later", 2, version)).await;
}

/// With one snapshot for a transaction, the gate would be read as of before the wait.
#[tokio::test]
async fn the_gate_is_held_under_read_committed_only() {
    let bench = Bench::start().await;
    let gate = bench.store.gate().await.unwrap().version;
    for level in ["repeatable read", "serializable"] {
        let set = format!("alter role gw in database shop set default_transaction_isolation = '{level}'");
        bench.admin.batch_execute(&set).await.unwrap();
        let error = bench.region.store().claim(&ask("k", 1, gate)).await.unwrap_err();
        assert!(matches!(&error, StoreError::Definite(why) if why.contains("OW003")), "{level}: {error}");
    }
    assert_eq!(bench.store.look_up(&[id("k")]).await, Ok(vec![vec![]]));
}

/// It may be repeated on a live deployment: it waits for no claim on its way.
#[tokio::test]
async fn an_init_that_changes_nothing_waits_for_no_claim() {
    let bench = Bench::start().await;
    let mut slow = bench.region.gateway_client().await;
    let held = slow.transaction().await.unwrap();
    held.execute("select onceway.hold_gate(null)", &[]).await.unwrap();
    let report = init(&bench.region.plan(&[], &["other#1"])).await;
    assert!(report.is_complete() && report.changes() == 0, "{report}");
    held.commit().await.unwrap();
}

/// A promoted server writes its first checkpoint minutes later. Until then its control file names
/// the timeline of before, by which it would pass for the same server, restarted.
#[tokio::test]
async fn a_promoted_server_is_on_another_timeline_at_once() {
    let (region, store, gate) = Region::ready("eu#1").await;
    region.promote().await;
    let found = found("the gate", || async { store.gate().await.ok() }).await;
    assert_eq!(found.running.timeline, gate.running.timeline + 1);
    done(store.approve(found.version, &found.running).await);
}

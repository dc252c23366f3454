//! Provisioning two regions: in any order, repeated, with rows arriving, with a lost slot.

use crate::store::support::*;
use tokio_postgres::error::SqlState;

pub fn line<'a>(report: &'a Report, what: &str) -> &'a Status {
    let found = report.lines.iter().find(|line| line.what == what);
    &found.unwrap_or_else(|| panic!("no {what} in {report}")).status
}

#[track_caller]
pub fn pending(report: &Report, what: &str, words: &str) {
    assert!(matches!(line(report, what), Status::Pending(why) if why.contains(words)), "{report}");
}

#[track_caller]
fn broken(report: &Report, what: &str, words: &str) {
    assert!(matches!(line(report, what), Status::Broken(why) if why.contains(words)), "{report}");
}

#[track_caller]
fn changed(report: &Report, what: &str) {
    assert_eq!(line(report, what), &Status::Changed, "{report}");
}

async fn two_that_meet() -> [Region; 2] {
    let (eu, us) = tokio::join!(Region::start("eu#1"), Region::start("us#1"));
    let (eu_plan, us_plan) = (eu.plan(&[&us], &[]), us.plan(&[&eu], &[]));
    init(&eu_plan).await;
    init_until_complete(&us_plan).await;
    init_until_complete(&eu_plan).await;
    [eu, us]
}

#[tokio::test]
async fn two_regions_meet_in_either_order_and_rows_arrive() {
    let (eu, us) = tokio::join!(Region::start("eu-west#1"), Region::start("us#1"));
    let (eu_plan, us_plan) = (eu.plan(&[&us], &[]), us.plan(&[&eu], &[]));
    let empty = check(&eu_plan).await;
    assert!(!empty.is_complete() && !empty.is_broken(), "{empty}");

    let first = init(&eu_plan).await;
    pending(&first, "subscription from us#1", "store init");
    let (second, _) = (init_until_complete(&us_plan).await, init_until_complete(&eu_plan).await);
    assert_eq!(line(&second, "subscription from eu-west#1"), &Status::Fine);

    for plan in [&eu_plan, &us_plan] {
        let again = init(plan).await;
        assert!(again.is_complete() && again.changes() == 0, "{again}");
        assert_eq!(again.lines, check(plan).await.lines);
    }

    let (eu_store, us_store) = (eu.store(), us.store());
    let gate = open(&eu_store).await;
    let attempt = won(&eu_store, &ask("k", 1, gate.version)).await;
    assert_eq!(seq(&eu_store).await, Some(1));
    let row =
        found("the row", || async { us_store.look_up(&[id("k")]).await.unwrap().remove(0).pop() }).await;
    assert_eq!((row.origin, row.token, row.nonce), (eu.origin.clone(), attempt.token, attempt.nonce));
    found("the heartbeat", || async {
        let beats = us_store.heartbeats().await.unwrap();
        beats.into_iter().find(|beat| beat.origin == eu.origin && beat.seq == 1)
    })
    .await;
    let seen = us_store.subscriptions().await.unwrap();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].from == "eu-west" && seen[0].ready && seen[0].streaming, "{seen:?}");

    settings_that_lack_something_are_hints(&us, &us_plan).await;
    slots_say_if_they_survive_a_promotion(&eu, &us, &us_plan).await;
    a_moved_peer_is_followed(&us, &us_plan).await;
    a_lost_slot_is_reported_and_left_alone(&eu, &us, &us_plan).await;
}

async fn settings_that_lack_something_are_hints(us: &Region, plan: &Plan) {
    let hints = async || {
        let report = check(plan).await;
        whole(&report);
        report.hints.into_iter().map(|hint| format!("{} = {}", hint.setting, hint.is)).collect::<Vec<_>>()
    };
    let before = hints().await;
    let admin = us.admin().await;
    for (setting, value) in [("jit", "on"), ("log_min_error_statement", "error")] {
        let sql = format!("alter database {DATABASE} set {setting} = {value}");
        admin.batch_execute(&sql).await.unwrap();
    }
    let all = [&["jit = on", "log_min_error_statement = error"].map(str::to_owned), &before[..]];
    let (mut expected, mut found) = (all.concat(), hints().await);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    admin.batch_execute(&format!("alter database {DATABASE} reset all")).await.unwrap();
}

async fn slots_say_if_they_survive_a_promotion(eu: &Region, us: &Region, plan: &Plan) {
    const SLOT: &str = "sub_eu_west_from_us";
    let shown = async || {
        let report = check(plan).await;
        whole(&report);
        report.promotion.into_iter().map(|one| (one.slot, one.survives)).collect::<Vec<_>>()
    };
    assert_eq!(shown().await, [], "there is no standby");
    let (admin, reader) = (us.admin().await, eu.admin().await);
    admin.batch_execute("select pg_create_physical_replication_slot('standby')").await.unwrap();
    assert_eq!(shown().await, [(SLOT.to_owned(), false)]);
    if Binaries::find().unwrap().major() >= 17 {
        let failover = async |set: bool| {
            reader.batch_execute(&format!("alter subscription {SLOT} disable")).await.unwrap();
            // Postgres refuses while the slot is still in use.
            let sql = format!("alter subscription {SLOT} set (failover = {set})");
            found("the slot to be free", || async { reader.batch_execute(&sql).await.ok() }).await;
            reader.batch_execute(&format!("alter subscription {SLOT} enable")).await.unwrap();
        };
        failover(true).await;
        broken(&check(plan).await, &format!("slot {SLOT}"), "does not wait for standby");
        for (sql, survives) in
            [("set synchronized_standby_slots = standby", true), ("reset synchronized_standby_slots", false)]
        {
            alter_system(&admin, sql).await;
            until("the setting", async || {
                let report = check(plan).await;
                report.promotion.iter().any(|one| one.survives) == survives
            })
            .await;
        }
        failover(false).await;
    }
    admin.batch_execute("select pg_drop_replication_slot('standby')").await.unwrap();
}

async fn a_moved_peer_is_followed(us: &Region, plan: &Plan) {
    let mut moved = plan.clone();
    for (_, conninfo) in &mut moved.subscribe {
        conninfo.push_str(" keepalives_idle=7 keepalives_count=4");
    }
    let shown = check(&moved).await;
    pending(&shown, "subscription from eu-west#1", "");
    changed(&init(&moved).await, "subscription from eu-west#1");
    let admin = us.admin().await;
    let kept: String = value(&admin, "select subconninfo from pg_subscription").await;
    assert!(kept.contains("keepalives_idle=7"), "{kept}");
    init_until_complete(plan).await;
}

async fn a_lost_slot_is_reported_and_left_alone(eu: &Region, us: &Region, plan: &Plan) {
    let (eu_admin, us_admin) = (eu.admin().await, us.admin().await);
    us_admin.batch_execute("alter subscription sub_us_from_eu_west disable").await.unwrap();
    let dropped =
        async || eu_admin.query("select pg_drop_replication_slot('sub_us_from_eu_west')", &[]).await.ok();
    found("the slot to be free", dropped).await;
    us_admin.batch_execute("alter subscription sub_us_from_eu_west enable").await.unwrap();
    for report in [check(plan).await, init(plan).await] {
        assert!(report.is_broken() && !report.is_complete(), "{report}");
        broken(&report, "subscription from eu-west#1", "missing");
    }
    let slots = "select count(*) from pg_replication_slots where slot_name = 'sub_us_from_eu_west'";
    assert_eq!(value::<i64>(&eu_admin, slots).await, 0, "the slot was made again");

    // Dropping the subscription alone is not enough: its rows would stop the copy.
    us_admin
        .batch_execute("alter subscription sub_us_from_eu_west disable; alter subscription sub_us_from_eu_west set (slot_name = none)")
        .await
        .unwrap();
    us_admin.batch_execute("drop subscription sub_us_from_eu_west").await.unwrap();
    let report = init(plan).await;
    broken(&report, "subscription from eu-west#1", "earlier");
    // A leftover slot of an interrupted attempt: nobody reads from it.
    let leftover = "select pg_create_logical_replication_slot('sub_us_from_eu_west', 'pgoutput')";
    eu_admin.query(leftover, &[]).await.unwrap();
    let from = RegionName::parse("eu-west").unwrap();
    provision::reseed(plan, &from).await.unwrap();
    init_until_complete(plan).await;
    let rows = "select (select count(*) from onceway.records_eu_west_g1), \
                       (select count(*) from onceway.records_imported where origin = 'eu-west#1!'), \
                       (select count(*) from onceway.heartbeats_eu_west_g1)";
    let rows = us_admin.query_one(rows, &[]).await.unwrap();
    let counts: [i64; 3] = [0, 1, 2].map(|at| rows.get(at));
    assert_eq!(counts, [1, 1, 1], "what was here is kept beside, the row was copied again");
    let well = provision::reseed(plan, &from).await.unwrap_err();
    assert!(well.to_string().contains("nothing to repair"), "{well}");
}

/// At the publisher first: rows go on arriving without it.
#[tokio::test]
async fn a_column_is_published_once_the_subscribers_have_it() {
    let [eu, us] = two_that_meet().await;
    let (eu_plan, us_plan) = (eu.plan(&[&us], &[]), us.plan(&[&eu], &[]));
    let (eu_admin, us_admin, store) = (eu.admin().await, us.admin().await, eu.store());
    let gate = open(&store).await;
    let add = "alter table onceway.records add column later text default 'x'";
    eu_admin.batch_execute(add).await.unwrap();
    won(&store, &ask("before", 1, gate.version)).await;
    let arrived = async |key: &str| {
        let sql = "select count(*) from onceway.records_eu_g1 where key = $1";
        us_admin.query_one(sql, &[&key.as_bytes()]).await.unwrap().get::<_, i64>(0) == 1
    };
    until("a row of before", async || arrived("before").await).await;

    let publication = "publication onceway_eu_g1";
    let early = init(&eu_plan).await;
    for words in ["column later of onceway.records_eu_g1", "us#1"] {
        pending(&early, publication, words);
    }
    pending(&check(&eu_plan).await, publication, "");

    us_admin.batch_execute(&add.replace("'x'", "'here'")).await.unwrap();
    changed(&init(&eu_plan).await, publication);
    assert_eq!(line(&init(&eu_plan).await, publication), &Status::Fine);
    won(&store, &ask("after", 2, gate.version)).await;
    until("a row of after", async || arrived("after").await).await;
    let sql = "select later from onceway.records_eu_g1 where key = 'after'";
    let later: String = value(&us_admin, sql).await;
    assert_eq!(later, "x", "the publisher's word, not the subscriber's default");
    init_until_complete(&us_plan).await;

    // A publication from before this rule gets its list, and nothing is lost.
    let all = "alter publication onceway_eu_g1 set table onceway.records_eu_g1, onceway.heartbeats_eu_g1";
    eu_admin.batch_execute(all).await.unwrap();
    pending(&check(&eu_plan).await, publication, "");
    changed(&init(&eu_plan).await, publication);
    won(&store, &ask("listed", 3, gate.version)).await;
    until("a row of listed", async || arrived("listed").await).await;
}

/// A store that may apply rows without the column does not get it. That is an existing store
/// without a leaf for a rebuilt one, a store that does not answer, or one that subscribes too
/// early. A region without a store will get one from this version.
#[tokio::test]
async fn a_column_waits_for_every_store_without_it() {
    let (eu, us) = tokio::join!(Region::start("eu#1"), Region::start("us#1"));
    let (eu_plan, us_plan) = (eu.plan(&[&us], &[]), us.plan(&[&eu], &[]));
    let (eu_admin, us_admin) = (eu.admin().await, us.admin().await);
    let add = "alter table onceway.records add column later text default 'x'";
    let publication = "publication onceway_eu_g1";
    let published = async || {
        let sql =
            "select 'later' = any (attnames) from pg_publication_tables where tablename like 'records%'";
        value::<bool>(&eu_admin, sql).await
    };
    let anew = "drop publication if exists onceway_eu_g1; drop publication if exists onceway_eu_g2";
    init(&eu_plan).await;
    eu_admin.batch_execute(&format!("{add}; {anew}")).await.unwrap();
    changed(&init(&eu_plan).await, publication);
    assert!(published().await, "nobody has a store that could lack it");

    // Made before the version that has the column.
    let early = init(&us_plan).await;
    let why = "publishes column later of onceway.records_eu_g1, which this store lacks";
    pending(&early, "subscription from eu#1", why);
    let none = "select count(*) from pg_subscription";
    assert_eq!(value::<i64>(&us_admin, none).await, 0, "it would apply nothing");

    // As a rebuilt store, which that one has no leaf for.
    let rebuilt =
        Plan { me: origin("eu#2"), all: vec![origin("eu#2"), us.origin.clone()], ..eu_plan.clone() };
    let emptied = format!("{anew}; truncate onceway.gate; delete from onceway.heartbeats");
    eu_admin.batch_execute(&emptied).await.unwrap();
    let held = init(&rebuilt).await;
    for words in ["column later of onceway.records_eu_g2", "us#1 has not"] {
        pending(&held, "publication onceway_eu_g2", words);
    }
    assert!(!published().await, "the peer has a store, and not the column");

    us.cluster.stop(Duration::from_secs(60)).await.unwrap();
    let silent = init(&rebuilt).await;
    pending(&silent, "publication onceway_eu_g2", "us#1 does not answer, and may not have");
    assert!(!published().await, "who does not answer may lack it");
    us.cluster.start().await.unwrap();
    let us_admin = us.admin().await;
    us_admin.batch_execute(add).await.unwrap();
    changed(&init(&rebuilt).await, "publication onceway_eu_g2");
    assert!(published().await, "all have it");
}

/// An earlier program leaves the store alone then. The second migration is made up.
#[tokio::test]
async fn an_older_store_is_migrated_and_keeps_its_keys() {
    let later: &'static [&'static str] = [
        provision::MIGRATIONS,
        &["create table onceway.made_up (n int); alter table onceway.records add column made_up int;"],
    ]
    .concat()
    .leak();
    let (region, store, gate) = Region::ready("eu#1").await;
    won(&store, &ask("kept", 1, gate.version)).await;
    let (before, plan) = (region.plan(&[], &["other#1"]), region.plan(&[], &["other#1", "third#1"]));
    let after = Plan { migrations: later, ..plan };
    let line_is = |report: &Report, status: &Status| line(report, "schema version 2") == status;
    let seen = check(&after).await;
    pending(&seen, "schema version 2", "");
    let report = init(&after).await;
    assert!(report.is_complete() && line_is(&report, &Status::Changed), "{report}");
    assert_eq!(line(&report, "leaves of third#1"), &Status::Changed, "a region joins");
    let admin = region.admin().await;
    let kept = "select count(*) from onceway.records where key = 'kept' and made_up is null";
    assert_eq!(value::<i64>(&admin, kept).await, 1);
    let again = init(&after).await;
    assert!(line_is(&again, &Status::Fine) && again.changes() == 0, "{again}");
    let refused = provision::init(&before).await.unwrap_err().to_string();
    assert!(refused.contains("use a newer onceway"), "{refused}");
    let other: &'static [&'static str] = [&later[..1], &["select 1;"]].concat().leak();
    let refused = provision::init(&Plan { migrations: other, ..after }).await.unwrap_err().to_string();
    assert!(refused.contains("its migration 2 is not the one of this program"), "{refused}");
}

/// Older than the gateway needs, or newer than admits it. Mere additions do not matter.
#[tokio::test]
async fn a_gateway_refuses_an_unsuitable_schema() {
    let (region, store, _) = Region::ready("eu#1").await;
    let admin = region.admin().await;
    let set = async |sql: &str| admin.batch_execute(&format!("update onceway.meta set {sql}")).await.unwrap();
    let refused = async || store.gate().await.err().map(|error| error.to_string()).unwrap_or_default();
    set("schema_version = schema_version + 1").await;
    assert_eq!(refused().await, "", "a migration that only added");
    set("gateways_from = schema_version").await;
    assert!(refused().await.contains("run the newer onceway here"), "{}", refused().await);
    set("gateways_from = 1, schema_version = schema_version - 1").await;

    // A running gateway asks at its next claim; one that fits opens the gate again.
    let moved = async |needed: i32| {
        let gate = open(&store).await;
        let sql = format!("select onceway.need_gateways({needed})");
        admin.batch_execute(&sql).await.unwrap();
        let claimed = store.claim(&ask("moved", 7, gate.version)).await.unwrap();
        assert!(matches!(claimed, ClaimReply::GateMoved), "{claimed:?}");
        assert_eq!(store.beat(None).await, Ok(None), "no boot is approved");
        gate
    };
    moved(99).await;
    assert!(refused().await.contains("run the newer onceway here"), "{}", refused().await);
    set("gateways_from = 1").await;
    let before = moved(1).await;
    let now = store.gate().await.unwrap();
    let same = |boot: onceway::ports::store::Boot| (boot.system, boot.timeline);
    assert_eq!(now.approved.map(same), before.approved.map(same), "as after a restart");

    let newer = r#"update onceway.gate set view = '{"protocol": 99, "epoch": 7, "unheard": 1}'"#;
    admin.batch_execute(newer).await.unwrap();
    assert!(refused().await.contains("run the newer onceway here"), "{}", refused().await);
    let checked = provision::check(&region.plan(&[], &["other#1"])).await;
    let Err(Error::Foreign(why)) = &checked else { panic!("{checked:?}") };
    assert!(why.contains("run the newer onceway here"), "{why}");
    admin.batch_execute("update onceway.gate set view = null").await.unwrap();

    set("gateways_from = 1, schema_version = 0").await;
    assert!(refused().await.contains("run its `onceway store init` first"), "{}", refused().await);
}

#[tokio::test]
async fn a_store_of_another_plan_is_left_alone() {
    let (region, _store, _gate) = Region::ready("eu#1").await;
    let plan = region.plan(&[], &["other#1"]);
    let mut others = vec![Plan { deployment: "another".to_owned(), ..plan.clone() }];
    for me in ["us#1", "eu#2"].map(origin) {
        let all = [&plan.all[..], std::slice::from_ref(&me)].concat();
        others.push(Plan { me, all, ..plan.clone() });
    }
    for other in &others {
        assert!(matches!(provision::init(other).await, Err(Error::Foreign(_))));
        assert!(matches!(provision::check(other).await, Err(Error::Foreign(_))));
    }
    let admin = region.admin().await;
    let leaves = "select count(*) from pg_class where relname like 'records\\_%\\_g_' and relkind = 'r'";
    assert_eq!(value::<i64>(&admin, leaves).await, 2, "a leaf was made");

    admin.batch_execute("update onceway.migrations set digest = 'x'").await.unwrap();
    let refused = provision::init(&plan).await;
    assert!(matches!(&refused, Err(Error::Foreign(why)) if why.contains("migration 1")), "{refused:?}");
}

#[tokio::test]
async fn a_service_may_give_replication_by_membership() {
    let region = Region::start("eu#1").await;
    let admin = region.admin().await;
    // As on Amazon's servers: the owner is no superuser, and cannot grant the attribute.
    admin
        .batch_execute(
            "create role rds_replication; create role master login createrole; \
             grant rds_replication to master with admin option; grant create on database shop to master; \
             grant pg_read_all_data to master",
        )
        .await
        .unwrap();
    let mut plan = region.plan(&[], &["other#1"]);
    plan.admin = region.cluster.url(DATABASE).replace("postgres@", "master@").parse().unwrap();
    whole(&init(&plan).await);
    let sql = "select rolreplication, pg_has_role(oid, 'rds_replication', 'usage') from pg_roles where rolname = 'repl'";
    let row = admin.query_one(sql, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (false, true));
    assert_eq!(check(&plan).await.changes(), 0);

    let [revoked, given] = ["revoke rds_replication from repl", "grant rds_replication to repl"]
        .map(|sql| format!("set role master; {sql}; reset role"));
    for (wrong, right, role, why) in [
        (&*revoked, &*given, "role repl", "`grant rds_replication to repl`"),
        ("grant rds_replication to gw", "revoke rds_replication from gw", "role gw", "read all WAL"),
        ("alter role gw createrole", "alter role gw nocreaterole", "role gw", "NOCREATEROLE"),
        (
            "grant pg_write_all_data to repl",
            "revoke pg_write_all_data from repl",
            "role repl",
            "it may write",
        ),
    ] {
        admin.batch_execute(wrong).await.unwrap();
        let report = check(&plan).await;
        broken(&report, role, why);
        admin.batch_execute(right).await.unwrap();
    }
    whole(&check(&plan).await);
}

#[tokio::test]
async fn a_wrong_plan_is_refused_before_anything_is_asked() {
    let region = Region::start("eu#1").await;
    let good = region.plan(&[], &["us#1"]);
    let mut bad = vec![good.clone(); 5];
    bad[0].all.clear();
    bad[1].gateway_role.name = "gw; drop".to_owned();
    bad[2].replication_role.as_mut().unwrap().name = "gw".to_owned();
    bad[3].subscribe = vec![(origin("us#1"), "host=".to_owned() + "'")];
    bad[4].subscribe = vec![(origin("eu#1"), "host=x".to_owned())];
    for plan in &bad {
        assert!(matches!(provision::init(plan).await, Err(Error::Plan(_))));
    }
    let mut nowhere = good.clone();
    nowhere.admin = "host=127.0.0.1 port=1 user=postgres".parse().unwrap();
    assert!(matches!(provision::init(&nowhere).await, Err(Error::Unreachable { .. })));
}

/// They count under their own generation, though its heartbeats no longer arrive.
#[tokio::test]
async fn rows_of_a_replaced_store_still_count() {
    let [eu, us] = two_that_meet().await;
    let (store, us_store) = (eu.store(), us.store());
    open(&store).await;
    let seq = store.beat(None).await.unwrap().unwrap().seq;
    found("the heartbeat, whole", || async {
        let beats = us_store.heartbeats().await.unwrap();
        beats.into_iter().find(|beat| beat.origin == eu.origin && beat.seq == seq && beat.whole)
    })
    .await;
    let anew = Region::start("eu#2").await;
    init(&anew.plan(&[&us], &[])).await;
    init_until_complete(&us.plan(&[&anew], &[])).await;
    let memory = us_store.recall().await.unwrap();
    let imported = memory.iter().find(|memory| memory.origin == eu.origin).map(|memory| memory.imported);
    assert_eq!(imported, Some(seq), "{memory:?}");
}

/// Whoever writes a record, each condition on it holds: one broken value, and nothing is written.
#[tokio::test]
async fn the_schema_refuses_incomplete_records() {
    let (region, store, gate) = Region::ready("eu#1").await;
    won(&store, &ask("whole", 1, gate.version)).await;
    let admin = region.admin().await;
    let set = async |sql: &str| admin.batch_execute(&format!("update onceway.records set {sql}")).await;
    let answered = "state = 4, settled_at = now(), answer_status = 200, answer_headers = '', answer_body = '', answer_length = 0";
    let alone = "state = 0; state = 6; epoch = 0; attempt = 0; fp_raw = '1'; fp_canonical = '1'; principal = '1'; hold_ms = -1; \
                 settle_ms = -1; recovery = -2; recovery = 1001; tombstone_ms = -1; over = '{}'; doubt_status = 500; \
                 state = 2, doubt_status = 1000; answer_status = 200; answer_headers = ''; \
                 answer_body = '', answer_length = 0; answer_coding = 2; settled_at = now(); state = 4";
    let in_answers = [
        ("now()", "null"),
        ("200", "99"),
        ("headers = ''", "headers = null"),
        ("length = 0", "length = null"),
    ];
    let in_answers = in_answers.map(|(right, wrong)| answered.replace(right, wrong));
    for broken in alone.split("; ").chain(in_answers.iter().map(String::as_str)) {
        let error = set(broken).await.expect_err(broken);
        assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{broken}: {error}");
    }
    for whole in ["state = 2, doubt_status = 500", "state = 3, doubt_status = null, attempt = 0"] {
        set(whole).await.unwrap();
    }
    set(&format!("{answered}, attempt = 1")).await.unwrap();
    set("answer_body = null, answer_length = null").await.unwrap();
}

/// A peer counts rows as applied that a promoted server lacks, and never sends them again.
#[tokio::test]
async fn a_promoted_server_ignores_heartbeats_until_resubscribed() {
    let [eu, us] = two_that_meet().await;
    let plan = us.plan(&[&eu], &[]);
    let (eu_store, us_store) = (eu.store(), us.store());
    open(&eu_store).await;
    seq(&eu_store).await;
    let is_whole = async |wanted: bool| {
        until("the heartbeat", async || {
            let beats = us_store.heartbeats().await.unwrap_or_default();
            beats.iter().any(|beat| beat.origin == eu.origin && beat.whole == wanted)
        })
        .await;
    };
    is_whole(true).await;
    us.promote().await;
    is_whole(false).await;
    let shown = check(&plan).await;
    broken(&shown, "subscription from eu#1", "this server was promoted since it was made");
    provision::reseed(&plan, &eu.origin.region).await.unwrap();
    init_until_complete(&plan).await;
    is_whole(true).await;
}

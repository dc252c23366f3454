//! Tests of private clusters with real servers: kill and restart, pause and start, drop, and a
//! start that must fail.
//!
//! Part of [`crate::cluster`]; they query its Postgres in SQL, in tables of their own.

use std::net::{Ipv4Addr, TcpListener};

use rustix::process::Pid;
use tempfile::TempDir;

use super::*;

const BOUND: Duration = Duration::from_secs(60);

async fn cluster() -> (TempDir, Cluster) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let port = crate::ports::free_run(1).unwrap();
    let binaries = Binaries::find_or_install().unwrap();
    let cluster =
        Cluster::create(&binaries, &dir.path().join("pg"), port, &[("work_mem", "5MB")]).await.unwrap();
    (dir, cluster)
}

async fn ask(cluster: &Cluster, question: &str) -> String {
    cluster.connect("shop").await.unwrap().query_one(question, &[]).await.unwrap().get(0)
}

fn processes(cluster: &Cluster) -> Vec<Pid> {
    proctable::living_under(&cluster.data(), &proctable::is_postgres)
}

/// Two subscribers with one identifier would take each other's slots away.
#[tokio::test]
async fn clusters_are_copies_with_identifiers_of_their_own() {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let (_dir, cluster) = cluster().await;
        cluster.start().await.unwrap();
        cluster.create_database("shop").await.unwrap();
        seen.insert(ask(&cluster, "select system_identifier::text from pg_control_system()").await);
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[tokio::test]
async fn committed_rows_survive_a_kill_and_a_restart() {
    let (_dir, cluster) = cluster().await;
    assert_eq!((cluster.pid(), cluster.state()), (None, None));
    assert!(cluster.pause().await.is_err(), "nothing runs yet");
    cluster.start().await.unwrap();
    cluster.create_database("shop").await.unwrap();
    cluster.create_database("shop").await.unwrap();
    assert_eq!(ask(&cluster, "show work_mem").await, "5MB");
    assert_eq!(ask(&cluster, "show wal_level").await, "logical");
    assert_eq!(ask(&cluster, "show log_error_verbosity").await, "terse");
    let client = cluster.connect("shop").await.unwrap();
    client
        .batch_execute("create table t (k text primary key); insert into t values ('planted-key')")
        .await
        .unwrap();
    assert!(client.batch_execute("insert into t values ('planted-key')").await.is_err());

    let first = cluster.pid().unwrap();
    cluster.start().await.unwrap();
    assert_eq!(cluster.pid(), Some(first), "a second start is no restart");
    cluster.pause().await.unwrap();
    assert_eq!(cluster.state(), Some(State::Paused));
    cluster.start().await.unwrap();
    assert_eq!((cluster.pid(), cluster.state()), (Some(first), Some(State::Running)));
    cluster.kill().await.unwrap();
    assert_eq!((cluster.pid(), processes(&cluster)), (None, vec![]));
    assert!(cluster.data().join("postmaster.pid").exists(), "that was no crash");

    cluster.start().await.unwrap();
    assert_ne!(cluster.pid(), Some(first));
    assert_eq!(ask(&cluster, "select k from t").await, "planted-key");
    let log = fs::read_to_string(cluster.dir.join("postgres.log")).unwrap();
    assert!(log.contains("duplicate key value") && !log.contains("planted-key"), "{log}");

    cluster.stop(BOUND).await.unwrap();
    assert!(!cluster.data().join("postmaster.pid").exists(), "that was no orderly shutdown");
}

#[tokio::test]
async fn dropping_leaves_no_process_and_no_shared_memory() {
    let (_dir, cluster) = cluster().await;
    cluster.start().await.unwrap();
    let data = cluster.data();
    let pid_file = fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let segment =
        pid_file.lines().nth(6).unwrap().split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let is_there = || {
        let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        table.lines().any(|line| line.split_ascii_whitespace().take(2).eq(segment.iter()))
    };
    assert!(is_there());
    drop(cluster);
    assert_eq!(proctable::living_under(&data, &proctable::is_postgres), vec![]);
    assert!(!is_there());
}

#[tokio::test]
async fn a_start_that_cannot_succeed_shows_the_log() {
    let (_dir, cluster) = cluster().await;
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, cluster.port())).unwrap();
    let error = timeout(BOUND, cluster.start()).await.unwrap().unwrap_err().to_string();
    assert!(error.contains(&cluster.port().to_string()) && error.contains("could not bind"), "{error}");
}

//! A Postgres whose disk is full: keys are refused, nothing is sent, no acknowledged write is lost,
//! and it heals. The disk is a small tmpfs, which needs root. Postgres itself does not survive a
//! disk without room for its log: a supervisor restarts it, as systemd would ([`supervise`]).
//! Gateways are not touched. No mount is left behind, however the test ends.

use crate::support::*;
use onceway_lab::process::State;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Child;

const SIZE: &str = "size=160m,mode=0755";

/// A small disk, mounted. A process that waits for our end unmounts it, even if we are killed.
struct Disk {
    at: PathBuf,
    unmounts: Child,
}

impl Disk {
    fn mount(at: PathBuf) -> Disk {
        fs::create_dir(&at).unwrap();
        let said = Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "onceway-test"]).arg(&at).output();
        ends(&said.expect("the program `mount`"), 0, "");
        let script = "cat; umount -l \"$0\"";
        let mut unmounts = Command::new("sh");
        unmounts.args(["-c", script]).arg(&at).stdin(Stdio::piped()).process_group(0);
        let unmounts = unmounts.spawn().expect("a shell");
        Disk { at, unmounts }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.unmounts.stdin.take());
        let is_gone = self.unmounts.wait().is_ok_and(|ended| ended.success());
        assert!(std::thread::panicking() || is_gone, "{} stays", self.at.display());
    }
}

/// Restarts Postgres whenever it has ended, as systemd's `Restart=always` does.
fn supervise(solo: &Arc<Solo>) -> Supervisor {
    let solo = Arc::downgrade(solo);
    Supervisor(tokio::spawn(async move {
        while let Some(solo) = solo.upgrade() {
            if matches!(solo.region.cluster.state(), Some(State::Exited { .. })) {
                let _in_vain = solo.region.act(Action::Start, Part::Postgres).await;
            }
            drop(solo);
            wait::pause(Duration::from_millis(200)).await;
        }
    }))
}

struct Supervisor(tokio::task::JoinHandle<()>);

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Twenty keys, each refused because the store is missing, and none of them sent.
async fn refused(solo: &Solo, word: &str) -> Vec<String> {
    let keys: Vec<_> = (0..20).map(|_| key(word)).collect();
    for key in &keys {
        let answer = charge(&solo.region, key).await;
        assert_eq!((answer.status.as_u16(), code(&answer).as_str()), (503, "store-unavailable"));
        assert_eq!(answer.json()["safe_to_retry"], true);
        assert_eq!(effects(&solo.ledger, key), 0, "sent without a durable claim");
    }
    keys
}

/// Waits until every key is answered 201, each with one effect; `before` holds earlier answers.
async fn recovers(solo: &Solo, keys: &[String], before: &[(String, Answer)]) {
    solo.serves().await;
    for key in keys {
        until("the key to be answered", async || charge(&solo.region, key).await.status == 201).await;
    }
    for (key, first) in before {
        let again = charge(&solo.region, key).await;
        let same = (again.status, &again.body) == (first.status, &first.body);
        assert!(same && again.header("idempotent-replayed") == "true", "an acknowledged answer was lost");
    }
    for key in keys.iter().chain(before.iter().map(|(key, _)| key)) {
        assert_eq!(effects(&solo.ledger, key), 1);
    }
}

/// Sends keys until the store has refused some of them: existing pages still have room inside.
/// Returns the answered keys with their answers, and the others.
async fn use_up(solo: &Solo, answered: &mut Vec<(String, Answer)>) -> Vec<String> {
    let (mut unanswered, mut refused) = (Vec::new(), 0);
    for _ in 0..20_000 {
        let key = key("filling");
        let answer = charge(&solo.region, &key).await;
        match answer.status.as_u16() {
            201 => answered.push((key, answer)),
            503 => {
                assert_eq!((code(&answer).as_str(), effects(&solo.ledger, &key)), ("store-unavailable", 0));
                unanswered.push(key);
                refused += 1;
            }
            // The claim found room, but the answer did not.
            504 => unanswered.push(key),
            status => panic!("told {status}: {}", answer.text()),
        }
        if refused == 5 {
            return unanswered;
        }
    }
    panic!("a full disk takes 20,000 keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_keys_and_heals() {
    let mounts = Command::new("unshare").args(["--mount", "true"]).output();
    if !mounts.is_ok_and(|said| said.status.success()) {
        return not_checked(
            "a full disk, which is a mounted tmpfs: run `sudo -E cargo test --test suites disk::`",
        );
    }
    let mut disk = None;
    let mounted = |dir: &Path| disk = Some(Disk::mount(dir.join("postgres")));
    let solo = Arc::new(Solo::start_with(&routes(), None, mounted).await);
    let disk = disk.expect("a disk");
    let gateway = solo.region.process().unwrap().pid();
    let first = key("before");
    let mut answered = vec![(first.clone(), charge(&solo.region, &first).await)];
    let ballast = disk.at.join("ballast");
    let mut file = File::create(&ballast).unwrap();
    for size in [1 << 20, 4096] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    drop(file);
    let mut unanswered = use_up(&solo, &mut answered).await;
    let postgres = solo.region.cluster.pid();
    assert!(postgres.is_some(), "Postgres gave up too soon for this test");
    let _supervisor = supervise(&solo);
    until("Postgres to find no room for its log", async || {
        let Ok(store) = solo.region.cluster.connect("onceway").await else { return true };
        store.batch_execute("select pg_switch_wal(), pg_logical_emit_message(false, '', '')").await.is_err()
    })
    .await;
    until("the gateway to notice", async || status(&solo.region).await["readiness"]["serves"] == false).await;
    unanswered.extend(refused(&solo, "full").await);
    until("its own recovery to fail, too", async || solo.region.cluster.pid() != postgres).await;
    unanswered.extend(refused(&solo, "fuller").await);
    fs::remove_file(ballast).unwrap();
    recovers(&solo, &unanswered, &answered).await;
    assert_eq!(solo.region.process().unwrap().pid(), gateway, "the gateway needed help");
}

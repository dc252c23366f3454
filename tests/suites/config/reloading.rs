//! Reading a configuration's files again: some settings are taken over, others wait for a restart.
//!
//! `cases.rs` has the files that these change, `tests/suites/reload.rs` does it to running
//! gateways. Settings that a case does not name must not wait.

use crate::config::{files, load, load_with, policy_of};
use crate::support::*;
use onceway::config::Config;

type Edit = (&'static str, &'static str, &'static str);

const URL_WAITS: &str = "the store's URL: only its role and password change without one";

/// The result of `second` in a process that started with the good files and `first` applied.
fn adopt(first: &[Edit], second: &[Edit]) -> (Config, Vec<String>) {
    let read = |edits: &[Edit]| -> Config {
        let folder = files(edits);
        fs::write(folder.path().join("token"), "a-token-of-25-characters-\n").unwrap();
        let mut config = load(folder.path()).unwrap_or_else(|errors| panic!("{edits:?}: {errors}"));
        // All folders count as one.
        let files = &mut config.process.peer.as_mut().unwrap().files;
        (files.certificate, files.key, files.authorities) = Default::default();
        config
    };
    read(first).adopt(read(second))
}

#[test]
fn nothing_waits_that_need_not() {
    for edit in [
        ("region", "region = \"east\"", "region = \"east\"\ndrain = \"9s\""),
        ("region", "[store]", "[listen.limits]\nconnections = 7\n[store]"),
        ("region", "[store]", "[listen.limits]\nrequests = 7\n[store]"),
        ("region", "[store]", "[quota]\nnew_keys_per_second = 7\n[store]"),
        ("region", "[store]", "[log]\nlevel = \"warn\"\n[store]"),
        ("region", "[store]", "[admin]\ntoken_file = \"token\"\n[store]"),
        ("region", "west = \"host=west ", "west = \"host=other "),
        ("credentials", "acme", "globex"),
        ("routes", "/v1/emails", "/v1/mails"),
        ("routes", "hold = \"10s\"", "hold = \"10s\"\nwait = \"1s\""),
        // A proposal, which `onceway ring apply` takes.
        ("ring", "weight = 1", "weight = 2"),
    ] {
        let (running, restart) = adopt(&[], &[edit]);
        assert_eq!(restart, [""; 0], "{edit:?}");
        let (before, after) = (load_with(&[]), &running);
        let same = format!("{:?} {:?} {:?}", before.credentials, before.shared.routes, before.process.quota)
            == format!("{:?} {:?} {:?}", after.credentials, after.shared.routes, after.process.quota)
            && before.process.listen == after.process.listen
            && before.process.log == after.process.log
            && before.process.drain == after.process.drain
            && before.process.admin == after.process.admin
            && edit.0 != "ring"
            && !edit.1.starts_with("west");
        assert!(!same, "{edit:?} is not taken over");
        // Peers compare the routes, and nothing else of these.
        assert_eq!(after.shared.digest != before.shared.digest, edit.0 == "routes", "{edit:?}");
        assert_eq!(after.shared.ring.digest(), before.shared.ring.digest(), "{edit:?}");
    }
}

#[test]
fn routes_that_wait_keep_the_room_for_their_bodies() {
    let wide = ("routes", "hold = \"10s\"", "hold = \"10s\"\nbody_limit = \"8MiB\"");
    let margin = ("ring", "drift_ppm = 500", "margin = \"800ms\"");
    let tight = ("routes", "hold = \"10s\"", "hold = \"9500ms\"");
    let less = ("region", "[store]", "[listen.limits]\nbodies = \"4MiB\"\n[store]");
    let bodies = |running: Config| running.process.listen.at_once.bodies;
    let (running, restart) = adopt(&[wide, margin], &[less, tight]);
    assert!(restart.len() == 2 && restart[1].starts_with("routes: "), "{restart:?}");
    assert_eq!(bodies(running), 256 << 20);
    let (running, restart) = adopt(&[wide], &[less]);
    assert_eq!((restart.len(), bodies(running)), (0, 4 << 20), "where the routes are taken over, so is that");
}

#[test]
fn the_store_gets_another_login_without_a_restart() {
    let (running, restart) = adopt(&[], &[("region", "gateway@", "other@")]);
    assert_eq!(restart, [""; 0]);
    assert!(running.process.store.url.reveal().starts_with("postgres://other@"));
}

#[test]
fn settings_that_wait_are_named_and_keep_their_value() {
    let before = format!("{:?}", load_with(&[]).settings().failover);
    for (edit, waits) in [
        (("ring", "deployment = \"test\"", "deployment = \"other\""), "deployment"),
        (("ring", "drift_ppm = 500", "drift_ppm = 501"), "clock.drift_ppm"),
        (("ring", "drift_ppm = 500", "margin = \"51ms\""), "clock.margin"),
        (("ring", "drift_ppm = 500", "skew = \"2s\""), "clock.skew"),
        (("ring", "seed = 7", "seed = 7\nheartbeat = \"200ms\""), "heartbeat"),
        (("ring", "seed = 7", "seed = 7\nmax_life = \"60d\""), "max_life"),
        (("ring", "[failover]", "[failover]\nlease = \"11s\""), "failover.lease"),
        (("ring", "[failover]", "[failover]\nmultiple = 3"), "failover.multiple"),
        (("ring", "[failover]", "[failover]\nfloor = \"2s\""), "failover.floor"),
        (("ring", "[failover]", "[failover]\nbeyond = \"61s\""), "failover.beyond"),
        (("ring", "[failover]", "[failover]\ndrain_limit = \"200ms\""), "failover.drain_limit"),
        (("ring", "[failover]", "[failover]\nkill_after = \"6s\""), "failover.kill_after"),
        (("ring", "[failover]", "[failover]\nstable_for = \"61s\""), "failover.stable_for"),
        (("ring", "[failover]", "[failover]\nmin_serving = 2"), "failover.min_serving"),
        (("region", "0.0.0.0:7401", "0.0.0.0:7409"), "listen.public"),
        (("region", "127.0.0.1:7402", "127.0.0.1:7409"), "listen.admin"),
        (("region", "0.0.0.0:7403", "0.0.0.0:7409"), "listen.peer"),
        (
            ("region", "[store]", "[listen.tls]\ncertificate = \"c\"\nkey = \"k\"\n[store]"),
            "[listen.tls] as such",
        ),
        (
            (
                "region",
                "[store]",
                "[listen.trusted]\naddress = \"127.0.0.1:1\"\ntenant_header = \"X-T\"\n[store]",
            ),
            "[listen.trusted]",
        ),
        (("region", "/onceway\"", "/other\""), URL_WAITS),
        (("region", "gateway@127.0.0.1", "other@127.0.0.2"), URL_WAITS),
        (("region", "[upstream]", "pool = 9\n[upstream]"), "store.pool"),
        (("region", "[upstream]", "generation = 2\n[upstream]"), "store.generation"),
        (("region", "127.0.0.1:7404", "127.0.0.1:7405"), "upstream.address"),
        (("region", "[store]", "trusted_proxies = [\"10.0.0.0/8\"]\n[store]"), "listen.trusted_proxies"),
        (("region", "[store]", "[listen.cors]\norigins = [\"https://a.b\"]\n[store]"), "[listen.cors]"),
        (("region", "[peer]", "[upstreams.pay]\naddresses = [\"http://p:1\"]\n[peer]"), "[upstreams]"),
        (("region", "[peer]", "host = \"keep\"\n[peer]"), "upstream.host"),
        (("region", "[peer]", "write_idle = \"1s\"\n[peer]"), "upstream.write_idle"),
        (("region", "[peer]", "max_age = \"1s\"\n[peer]"), "upstream.max_age"),
        (("region", "[peer]", "connections = 9\n[peer]"), "upstream.connections"),
        (("region", "[peer]", "resolve_every = \"1s\"\n[peer]"), "upstream.resolve_every"),
        (("region", "[peer]", "[upstream.elsewhere]\nwest = \"http://w:1\"\n[peer]"), "[upstream.elsewhere]"),
        (("region", "[peer]", "[upstream.health]\npath = \"/h\"\n[peer]"), "[upstream.health]"),
        (("region", "west.internal:7403", "west.internal:7409"), "peer.addresses"),
        (("region", "region = \"east\"", "region = \"east\"\nshadow = true"), "shadow"),
        (("region", "[store]", "[log]\nformat = \"json\"\n[store]"), "log.format"),
    ] {
        let (running, restart) = adopt(&[], &[edit]);
        assert_eq!(restart, [waits], "{edit:?}");
        let config = &running;
        assert_eq!(config.shared.digest, load_with(&[]).shared.digest, "{edit:?}");
        assert_eq!(format!("{:?}", config.settings().failover), before, "{edit:?}");
        // The setting waits for as long as the file has it.
        assert_eq!(running.adopt(load_with(&[edit])).1, [waits], "{edit:?}");
    }
}

#[test]
fn an_admin_listener_that_others_reach_keeps_its_token() {
    let open: [Edit; 2] = [
        ("region", "127.0.0.1:7402", "0.0.0.0:7402"),
        ("region", "[store]", "[admin]\ntoken_file = \"token\"\n[store]"),
    ];
    // The file now says loopback and no token, but the listener is still open to all.
    let (running, restart) = adopt(&open, &[]);
    assert_eq!(restart, ["listen.admin"]);
    assert!(running.process.admin.token.is_some());
}

#[test]
fn routes_that_do_not_fit_what_stays_as_it_is_wait() {
    let hold = |running: &Config| policy_of(running, "/v1/charges").hold;
    // The hold fits the file's margin, but not the running one.
    let margin = ("ring", "drift_ppm = 500", "margin = \"800ms\"");
    let tight = ("routes", "hold = \"10s\"", "hold = \"9500ms\"");
    let (running, restart) = adopt(&[margin], &[tight]);
    let why = "routes: route \"charges\": hold 9500ms is too short";
    assert!(restart.len() == 2 && restart[1].starts_with(why), "{restart:?}");
    assert_eq!(restart[0], "clock.margin");
    assert_eq!(hold(&running), Duration::from_secs(10));
    let (running, restart) = adopt(&[], &[tight]);
    assert_eq!((restart.len(), hold(&running)), (0, Duration::from_millis(9_500)));
}

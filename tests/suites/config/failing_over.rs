//! Failover and escrow in the files: the mistakes with the exact message for each, and correct
//! settings. The good ring is of two regions, so it says `manual`.

use crate::config::cases::Case;
use crate::config::{load_reference, load_with, policy_of, said_with};
use crate::support::*;
use onceway::gateway::authority::failover::Mode;
use onceway::gateway::policy::route::{Alone, Escrow};

#[rustfmt::skip]
pub const FAILOVER_CASES: &[Case] = &[
    ("ring", "mode = \"manual\"", "mode = \"automatic\"",
        "ring.toml:12: two regions cannot fail over by themselves: when one is gone, the other is no majority and cannot know that it is not itself cut off. Add a third voter ([[witness]] with a name), or write failover = \"manual\" (an operator decides)"),
    ("ring", "[failover]\nmode = \"manual\"\n", "",
        "ring.toml:4: two regions cannot fail over by themselves: when one is gone, the other is no majority and cannot know that it is not itself cut off. Add a third voter ([[witness]] with a name), or write failover = \"manual\" (an operator decides)"),
    ("ring", "mode = \"manual\"", "mode = \"off\"",
        "ring.toml:12: two regions cannot fail over by themselves: when one is gone, the other is no majority and cannot know that it is not itself cut off. Add a third voter ([[witness]] with a name), or write failover = \"manual\" (an operator decides)\n\
         ring.toml:13: [failover]: mode: must be \"automatic\" or \"manual\", not \"off\""),
    ("ring", "[[region]]", "failover = 3\n[[region]]",
        "ring.toml:13: not TOML: duplicate key"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nlease = \"900ms\"",
        "ring.toml:14: [failover]: lease: \"900ms\" is out of range: use \"1s\" to \"10m\""),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nlease = \"1s\"",
        "ring.toml:14: [failover]: lease 1s is too short: 949ms of it can be relied on (clock drift 500 ppm, margin 50ms), which must be more than four heartbeats (1s) and three pings (750ms); lengthen lease, or shorten heartbeat"),
    ("ring", "seed = 7", "seed = 7\nheartbeat = \"3s\"",
        "ring.toml:13: [failover]: lease 10s is too short: 9945ms of it can be relied on (clock drift 500 ppm, margin 50ms), which must be more than four heartbeats (12s) and three pings (750ms); lengthen lease, or shorten heartbeat"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmultiple = 1.99",
        "ring.toml:14: [failover]: multiple is less than 2: the last rows of a lost region may still be on their way when its keys start elsewhere, and these would run twice; write 2 or more, or unsafe_multiple = true beside it if you accept that"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmultiple = 2.125",
        "ring.toml:14: [failover]: multiple: must be a number from 0 to 100 with at most two decimals, such as 2 or 2.5"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmultiple = -2",
        "ring.toml:14: [failover]: multiple: must be a number from 0 to 100 with at most two decimals, such as 2 or 2.5"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmultiple = 100.01",
        "ring.toml:14: [failover]: multiple: must be a number from 0 to 100 with at most two decimals, such as 2 or 2.5"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmultiple = inf",
        "ring.toml:14: [failover]: multiple: must be a number from 0 to 100 with at most two decimals, such as 2 or 2.5"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmultiple = \"2\"",
        "ring.toml:14: [failover]: multiple: must be a number from 0 to 100 with at most two decimals, such as 2 or 2.5, not a text"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nfloor = \"2m\"",
        "ring.toml:14: [failover]: floor 2m is longer than beyond 1m, so nothing would ever open by itself: shorten floor or lengthen beyond"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\ndrain_limit = \"5s\"",
        "ring.toml:14: [failover]: drain_limit 5s must be shorter than kill_after 5s, or a change would be ended while it still waits for attempts"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmin_serving = 3",
        "ring.toml:12: min_serving 3 is more than the number of regions that own keys (2), so none could ever be drained: lower it"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nmin_serving = 0",
        "ring.toml:14: [failover]: min_serving: must be a whole number from 1 to 64"),
    ("ring", "mode = \"manual\"", "mode = \"manual\"\nupstream_drain = true",
        "ring.toml:14: [failover]: unknown key \"upstream_drain\": known here are beyond, drain_limit, floor, kill_after, lease, min_serving, mode, multiple, stable_for, unsafe_multiple"),
    ("ring", "[failover]", "[[witness]]\nname = \"east\"\n[failover]",
        "ring.toml:12: [[witness]]: witness east has a region's name: give it one of its own"),
    ("ring", "[failover]", "[[witness]]\n[failover]",
        "ring.toml:12: [[witness]]: name is missing: name the witness, such as name = \"witness-1\"; region files give its address under that name"),
    ("ring", "[failover]", "[[witness]]\nname = \"arbiter\"\n[failover]",
        "region.toml:18: [peer.addresses] has no arbiter: add arbiter = \"...\", the listener of that witness, host:port"),
    ("region", "[provision]", "arbiter = \"a:7403\"\n[provision]",
        "region.toml:20: [peer.addresses] names arbiter, which the ring does not have: remove it"),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nescrow = \"claims\"",
        "routes.toml:9: route \"charges\": escrow: must be \"off\" or \"claim\" or \"claim+answer\", not \"claims\""),
    ("routes", "hold = \"10s\"", "hold = \"20s\"\nescrow = \"claim\"\nescrow_alone = \"wait\"",
        "routes.toml:10: route \"charges\": escrow_alone: must be \"refuse\" or \"run\", not \"wait\""),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nescrow_alone = \"run\"",
        "routes.toml:9: route \"charges\": escrow_alone has no effect without escrow: remove it, or write escrow = \"claim\" or \"claim+answer\""),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nescrow = \"claim\"",
        "routes.toml:1: route \"charges\": hold 10s is too short: 9945ms of it can be relied on (clock drift 500 ppm, margin 50ms), but claiming (4s), escrow (1s), the upstream (upstream_timeout 5s) and some room (100ms) need 10100ms; lengthen hold or shorten upstream_timeout"),
    ("routes", "hold = \"10s\"", "hold = \"11s\"\nescrow = \"claim+answer\"",
        "routes.toml:1: route \"charges\": hold 11s is too short: 10944ms of it can be relied on (clock drift 500 ppm, margin 50ms), but claiming (4s), escrow (twice 1s), the upstream (upstream_timeout 5s) and some room (100ms) need 11100ms; lengthen hold or shorten upstream_timeout"),
    ("routes", "key = \"off\"", "key = \"off\"\nescrow = \"claim\"",
        "routes.toml:19: route \"search\": escrow has no effect where key = \"off\": remove it, or handle keys"),
];

#[test]
fn failover_is_what_the_file_says_and_otherwise_the_default() {
    let ms = Duration::from_millis;
    let of = |edits: &[(&str, &str, &str)]| load_with(edits).settings().failover;
    let plain = of(&[]);
    assert_eq!((plain.mode, plain.lease, plain.min_serving), (Mode::Manual, ms(10_000), 1));
    assert_eq!((plain.window.percent, plain.window.floor, plain.window.beyond), (200, ms(1_000), ms(60_000)));
    assert_eq!((plain.drain_limit, plain.kill_after, plain.stable_for), (ms(300), ms(5_000), ms(60_000)));
    let short = of(&[
        ("ring", "[failover]\nmode = \"manual\"\n", ""),
        ("ring", "seed = 7", "seed = 7\nfailover = \"manual\""),
    ]);
    assert_eq!(format!("{short:?}"), format!("{plain:?}"));
    let written = "[failover]\nlease = \"3s\"\nmultiple = 2.5\nfloor = \"2s\"\nbeyond = \"3m\"\ndrain_limit = \"1s\"\n\
                   kill_after = \"9s\"\nstable_for = \"5s\"\nmin_serving = 2\n[[witness]]\nname = \"w2\"\n[[witness]]\nname = \"w1\"\n";
    let addresses = ("region", "[provision]", "w1 = \"w1:1\"\nw2 = \"w2:1\"\n[provision]");
    let all = of(&[("ring", "[failover]\nmode = \"manual\"\n", written), addresses]);
    assert_eq!((all.mode, all.lease, all.min_serving), (Mode::Automatic, ms(3_000), 2));
    assert_eq!((all.window.percent, all.window.floor, all.window.beyond), (250, ms(2_000), ms(180_000)));
    assert_eq!((all.drain_limit, all.kill_after, all.stable_for), (ms(1_000), ms(9_000), ms(5_000)));
    assert_eq!(all.witnesses.iter().map(RegionName::as_str).collect::<Vec<_>>(), ["w1", "w2"]);
    for (text, percent) in [("2", 200), ("2.05", 205), ("100", 10_000), ("100.0", 10_000)] {
        let line = format!("[failover]\nmultiple = {text}");
        assert_eq!(of(&[("ring", "[failover]", &line)]).window.percent, percent, "{text}");
    }
    let reference = load_reference("us-east.toml");
    assert_eq!(
        format!("{:?}", reference.shared.failover),
        format!("{plain:?}").replace("Manual", "Automatic"),
        "the reference file states the defaults"
    );
    let risky = of(&[("ring", "[failover]", "[failover]\nmultiple = 0\nunsafe_multiple = true")]);
    assert_eq!(risky.window.percent, 0);
}

#[test]
fn a_lease_outlives_three_pings_however_fast_the_heartbeat() {
    let with = |margin: &str| {
        let margin = format!("margin = \"{margin}\"");
        said_with(&[
            ("ring", "seed = 7", "seed = 7\nheartbeat = \"50ms\""),
            ("ring", "drift_ppm = 500", &margin),
            ("ring", "[failover]", "[failover]\nlease = \"1s\""),
        ])
    };
    assert_eq!(with("240ms"), [""; 0]);
    let short = with("250ms");
    assert!(short.len() == 1 && short[0].contains("749ms of it can be relied on"), "{short:?}");
}

#[test]
fn a_region_that_cannot_fail_over_must_say_so() {
    let automatic = ("ring", "[failover]\nmode = \"manual\"\n", "");
    let refused = |edits: &[(&str, &str, &str)]| said_with(&[&[automatic], edits].concat());
    assert_eq!(refused(&[]).len(), 1);
    // An edge has an acceptor as well. No other region can take over from the only owner.
    let edge = ("ring", "[clock]", "[[region]]\nname = \"edge\"\nweight = 0\n[clock]");
    let addresses = ("region", "[provision]\n", "edge = \"e:1\"\n[provision]\n");
    let publisher = (
        "region",
        "[provision.publishers]",
        "[provision.publishers]\nedge = \"host=e user=r dbname=o sslmode=disable\"",
    );
    assert_eq!(refused(&[edge, addresses, publisher]), [""; 0]);
    assert_eq!(refused(&[("ring", "name = \"west\"\nweight = 1", "name = \"west\"\nweight = 0")]), [""; 0]);
    let witness = ("ring", "[clock]", "[[witness]]\nname = \"w\"\n[clock]");
    assert_eq!(refused(&[witness, ("region", "[provision]", "w = \"w:1\"\n[provision]")]), [""; 0]);
    let twice = ("ring", "[clock]", "[[witness]]\nname = \"w\"\n[[witness]]\nname = \"w\"\n[clock]");
    let said = refused(&[twice, ("region", "[provision]", "w = \"w:1\"\n[provision]")]);
    assert_eq!(said, ["ring.toml:12: [[witness]]: witness w is listed twice: list each witness once"]);
}

#[test]
fn escrow_needs_a_region_that_can_hold_the_claims() {
    let by = |lines: &str| format!("recovery = \"rerun\"\nescrow = {lines}");
    let with = |lines: &str, others: &[(&'static str, &'static str, &'static str)]| {
        said_with(&[&[("routes", "recovery = \"rerun\"", &*by(lines))], others].concat())
    };
    let escrow = |lines: &str| {
        let config = load_with(&[("routes", "recovery = \"rerun\"", &by(lines))]);
        assert_eq!(config.shared.escrow().iter().map(|name| &**name).collect::<Vec<_>>(), ["emails"]);
        policy_of(&config, "/v1/emails").escrow
    };
    assert_eq!(escrow("\"claim\""), Escrow::Claim(Alone::Refuse));
    let both = "\"claim+answer\"\nescrow_alone = \"run\"";
    assert_eq!(escrow(both), Escrow::ClaimAndAnswer(Alone::Run));
    let edge = ("ring", "name = \"west\"\nweight = 1", "name = \"west\"\nweight = 0");
    let pin = ("ring", "[clock]", "[[pin]]\ntenant = \"acme\"\nregions = [\"west\"]\n[clock]");
    for (other, why) in
        [(edge, "only one region of the ring owns keys"), (pin, "tenant acme is pinned to west alone")]
    {
        let line = format!(
            "routes.toml:10: route \"emails\": under escrow the next region holds the claims, but {why}, so its new keys would always be \
             refused: write escrow_alone = \"run\" (they run without escrow), or name a second region"
        );
        assert_eq!(with("\"claim\"", &[other]), [line]);
        assert_eq!(with("\"claim\"\nescrow_alone = \"run\"", &[other]), [""; 0]);
    }
}

#[test]
fn the_demos_files_are_right_for_any_number_of_regions() {
    use onceway::adapters::issue;
    use onceway_lab::files::{RegionFile, write_region, write_shared};
    use onceway_lab::ports::FleetPorts;
    for (names, mode) in
        [(&["a"][..], Mode::Automatic), (&["a", "b"], Mode::Manual), (&["a", "b", "c"], Mode::Automatic)]
    {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<RegionName> = names.iter().map(|name| RegionName::parse(name).unwrap()).collect();
        write_shared(folder.path(), &names).unwrap();
        let certificates = folder.path().join("certificates");
        fs::create_dir(&certificates).unwrap();
        issue::generate(&names).unwrap().write(&certificates).unwrap();
        let ports = FleetPorts::lay_out(7_400, names.len()).unwrap();
        let at = |name: &RegionName| (name.clone(), "127.0.0.1:7403".parse().unwrap());
        let peers: Vec<_> = names[1..].iter().map(at).collect();
        let region = RegionFile {
            name: &names[0],
            ports: ports.regions[0],
            peers: peers.clone(),
            publishers: peers,
            endpoints: Vec::new(),
        };
        let config = Config::load_with(&write_region(folder.path(), &region).unwrap(), &|_| None).unwrap();
        assert_eq!(config.shared.failover.mode, mode);
        assert_eq!(config.shared.failover.lease, Duration::from_secs(3));
        assert_eq!(config.shared.escrow().len(), usize::from(names.len() > 1), "payouts");
    }
}

//! The short form of the drills, on real processes: a region killed, cut off and drained under
//! load; a standby promoted; and forty seconds of soak.
//!
//! The long form is `onceway drill`, run by hand, which also checks spans against their bounds. A
//! failed run prints its schedule. It must not check a span: a busy machine has its own.

use crate::support::*;
use onceway_lab::compare::{self, Compared, Workload};
use onceway_lab::drill::{self, Drill, Settings};

fn options(settings: &Settings) -> Options {
    let (program, port_base, rtt) = (program(), port_base(), settings.rtt);
    Options { program, port_base, rtt, ..Options::default() }
}

/// Runs these drills one after the other. Each must hold.
fn hold(drills: &[Drill]) {
    run(async {
        // Leases of three seconds, and a load to keep up.
        let _alone = alone().await;
        let settings = Settings { rate: 10.0, probes: 10.0, timed: false, ..Settings::default() };
        let reports = drill::run(drills, &options(&settings), &settings, &|_| {}, &mut |_| {}).await.unwrap();
        let broken: String =
            reports.iter().filter(|report| !report.held).map(|report| report.in_words()).collect();
        assert!(broken.is_empty(), "{broken}");
        assert!(reports.iter().all(|report| report.keys > 50), "there was hardly any load");
    });
}

/// Of `.ci/run`.
#[test]
fn regions_are_killed_and_drained_and_nothing_runs_twice() {
    hold(&[Drill::Drain, Drill::Kill]);
}

#[test]
fn a_region_that_is_cut_off_runs_nothing_twice() {
    hold(&[Drill::Isolate]);
}

#[test]
fn a_promoted_standby_keeps_every_row_and_reruns_nothing() {
    if ["patroni", "etcd"].iter().any(|name| installed(name).is_none()) {
        return not_checked("Patroni or etcd is missing: no standby is promoted");
    }
    hold(&[Drill::Promote]);
}

/// Two regions copy a third one's records while it comes home. If a key runs a second time
/// meanwhile, its record says so, and no other key does.
#[test]
fn keys_that_rerun_during_a_copy_are_recorded() {
    run(async {
        // Leases of three seconds, and a load to keep up.
        let _alone = alone().await;
        let settings = Settings { rate: 6.0, probes: 10.0, timed: false, ..Settings::default() };
        let port_base = ports::free_run(60).expect("sixty free ports in a row");
        let options = Options { port_base, ..options(&settings) };
        let reports = drill::run(&[Drill::Reseed], &options, &settings, &|_| {}, &mut |_| {}).await.unwrap();
        let [report] = &reports[..] else { panic!("one run") };
        assert!(report.held, "{}", report.in_words());
        let number = |name: &str| report.numbers[name].as_u64();
        assert!(number("sent_again_while_copied") > Some(0), "{}", report.in_words());
        assert!(number("answered_while_copied") > Some(0), "{}", report.in_words());
    });
}

#[test]
fn a_short_soak_loses_nothing_and_leaks_nothing() {
    run(async {
        // Leases of three seconds, and a load to keep up.
        let _alone = alone().await;
        let soak = Duration::from_secs(40);
        let settings = Settings { rate: 6.0, soak, timed: false, ..Settings::default() };
        let port_base = ports::free_run(60).expect("sixty free ports in a row");
        let options = Options { port_base, ..options(&settings) };
        let reports = drill::run(&[Drill::Soak], &options, &settings, &|_| {}, &mut |_| {}).await.unwrap();
        let [report] = &reports[..] else { panic!("one run") };
        assert!(report.held, "{}", report.in_words());
        println!("{}", report.in_words());
        let number = |name: &str| report.numbers[name].as_u64();
        for event in ["reloads", "rotations", "stops", "kills", "drains"] {
            assert!(report.numbers["events"][event].as_u64() > Some(0), "no {event}");
        }
        for none in ["double_effects", "lost_settlements", "left_open", "dropped", "audit_not_clean"] {
            assert_eq!(number(none), Some(0), "{none}");
        }
        assert!(number("settlements") > Some(100), "there was hardly any load");
    });
}

#[test]
fn the_naive_design_doubles_effects_and_onceway_does_not() {
    run(async {
        // Leases of three seconds, and a load to keep up.
        let _alone = alone().await;
        let deployment = Deployment::start(&options(&Settings::default()), &|_| {}).await.unwrap();
        let workload = Workload {
            rate: 20.0,
            span: Duration::from_secs(8),
            victim: 1,
            killed_after: Duration::from_secs(4),
        };
        let Compared { naive, onceway } = compare::run(&deployment, &workload, "both").await.unwrap();
        assert!(naive.keys > 100 && naive.keys == onceway.keys, "{naive:?} {onceway:?}");
        assert!(naive.doubles > 0, "the comparison shows nothing: {naive:?}");
        assert!(onceway.doubles == 0 && onceway.effects > 0, "{onceway:?}");
        let ours = deployment.ledger.totals(None).iter().map(|total| total.effects).sum::<u64>();
        assert_eq!(ours, onceway.effects, "the naive design has a ledger of its own");
        deployment.regions[1].serves().await.unwrap();
        deployment.shut_down().await.unwrap();
    });
}

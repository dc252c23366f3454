//! The short form of the drills, on real processes: a region killed, cut off and drained under
//! load, a standby promoted, and a short soak. `onceway drill` also checks spans against their
//! bounds: a busy machine has its own.

use crate::support::*;
use onceway_lab::compare::{self, Compared, Workload};
use onceway_lab::drill::report::Report;
use onceway_lab::drill::{self, Drill, Settings};

fn options(settings: &Settings) -> Options {
    // Some regions have several gateways.
    let port_base = ports::free_run(60).expect("sixty free ports in a row");
    let (program, rtt) = (program(), settings.rtt);
    Options { program, port_base, rtt, ..Options::default() }
}

/// Runs these drills, with leases of three seconds and a load to keep up. Each must hold.
fn held(drills: &[Drill], settings: Settings) -> Vec<Report> {
    run(async {
        let _alone = alone().await;
        let settings = Settings { timed: false, ..settings };
        let reports = drill::run(drills, &options(&settings), &settings, &|_| {}, &mut |_| {}).await.unwrap();
        let broken: String =
            reports.iter().filter(|report| !report.held).map(|report| report.in_words()).collect();
        assert!(broken.is_empty(), "{broken}");
        reports
    })
}

fn hold(drills: &[Drill]) {
    let reports = held(drills, Settings { rate: 10.0, probes: 10.0, ..Settings::default() });
    assert!(reports.iter().all(|report| report.keys > 50), "there was hardly any load");
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

/// If a key runs a second time while others copy its records, its record says so.
#[test]
fn keys_that_rerun_during_a_copy_are_recorded() {
    let reports = held(&[Drill::Reseed], Settings { rate: 6.0, probes: 10.0, ..Settings::default() });
    let [report] = &reports[..] else { panic!("one run") };
    for count in ["sent_again_while_copied", "answered_while_copied"] {
        assert!(report.numbers[count].as_u64() > Some(0), "{count}: {}", report.in_words());
    }
}

#[test]
fn a_short_soak_loses_nothing_and_leaks_nothing() {
    let soak = Duration::from_secs(40);
    let reports = held(&[Drill::Soak], Settings { rate: 6.0, soak, ..Settings::default() });
    let [report] = &reports[..] else { panic!("one run") };
    println!("{}", report.in_words());
    for event in ["reloads", "rotations", "stops", "kills", "drains"] {
        assert!(report.numbers["events"][event].as_u64() > Some(0), "no {event}");
    }
    for none in ["double_effects", "lost_settlements", "left_open", "dropped", "audit_not_clean"] {
        assert_eq!(report.numbers[none].as_u64(), Some(0), "{none}");
    }
    assert!(report.numbers["settlements"].as_u64() > Some(100), "there was hardly any load");
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

//! Every alert of deploy/prometheus/alerts.yml fires: a real Prometheus looks at three real regions
//! in which each alert's cause is produced.
//!
//! Groups share a cause. The short form plays those of [`SHORT`]; `ONCEWAY_ALERTS=all cargo test
//! --test long alerts::` plays all of them. The rules are those of the file, times divided
//! (`alerts/rules.rs`). It must not change an expression or a bound: `promtool` plays
//! the rules over made-up series, on both sides of their bounds (`alerts_test.yml`).

mod dashboard;
mod losses;
mod machines;
mod prometheus;
mod requests;
mod rules;
mod stage;
mod witness;

use crate::support::promtool::{promtool, server};
use crate::support::*;
use rules::Rules;
use stage::Stage;

/// The causes, and the alerts that each must make fire. The last one leaves no deployment, so the
/// order matters.
const GROUPS: [(&str, &[&str]); 17] = [
    (
        "clients and upstream",
        &["OncewayKeysReused", "OncewayInProgress", "OncewayDeadLetters", "OncewayDoubtsGrow"],
    ),
    ("too many at once", &["OncewayOverloaded"]),
    ("lost rows", &["OncewayClaimsLost", "OncewayLateAnswers"]),
    ("a gateway dies", &["OncewayDown"]),
    ("a gateway alone", &["OncewayGatewayRunsNothing"]),
    ("a witness", &["OncewayWitnessHasNoVote"]),
    ("a stranger", &["OncewayPeerRefused"]),
    ("settings that differ", &["OncewaySettingsDiffer"]),
    ("a store of errors", &["OncewayRequestsFail", "OncewayAvailabilityBurns"]),
    ("a sick upstream", &["OncewayUpstreamSick"]),
    ("a slow store", &["OncewayStoreSlow", "OncewayOverheadBurns"]),
    ("a silent store", &["OncewayStoreSilent"]),
    (
        "left alone",
        &[
            "OncewayCertificateExpires",
            "OncewayCertificateExpiresSoon",
            "OncewayConfigNotCurrent",
            "OncewayDoubtsStay",
            "OncewayJobsWait",
        ],
    ),
    ("a window", &["OncewayReplicationLag", "OncewayWindowRunning", "OncewayPeerSilent"]),
    ("beyond", &["OncewayLossNeedsOperator", "OncewayNeedsOperator", "OncewayDoubleRuns"]),
    ("an unexplained double", &["OncewayUnexplainedDoubles"]),
    ("ruins", &["OncewaySlotGrows", "OncewaySlotLost", "OncewayRegionRunsNothing"]),
];
/// Alerts that are not played. This one looks back a day and waits for six hours, which is half an
/// hour when divided. `seeing` tests its rule on both sides of its bound; that has to do.
const NOT_PLAYED: [&str; 1] = ["OncewayAuditBehind"];
/// The causes of the short form.
const SHORT: [&str; 4] = ["clients and upstream", "too many at once", "lost rows", "a gateway dies"];
/// The time for which a healthy deployment is watched.
const HEALTHY: Duration = Duration::from_secs(8);

async fn play(group: &str, stage: &Stage) {
    match group {
        "clients and upstream" => requests::play(stage).await,
        "too many at once" => requests::too_many(stage).await,
        "lost rows" => machines::rows_lost(stage).await,
        "a gateway dies" => machines::gateway_dies(stage).await,
        "a gateway alone" => machines::gateway_alone(stage).await,
        "a witness" => witness::has_no_vote(stage).await,
        "a stranger" => machines::stranger(stage).await,
        "settings that differ" => machines::settings_differ(stage).await,
        "a store of errors" => machines::store_of_errors(stage).await,
        "a sick upstream" => machines::upstream_sick(stage).await,
        "a slow store" => machines::store_slow(stage).await,
        "a silent store" => machines::store_silent(stage).await,
        "left alone" => machines::left_alone(stage).await,
        "a window" => losses::window(stage).await,
        "beyond" => losses::beyond(stage).await,
        "an unexplained double" => losses::unexplained(stage).await,
        "ruins" => losses::ruins(stage).await,
        other => panic!("nobody plays {other:?}"),
    }
}

#[test]
fn every_alert_rule_has_one_drill() {
    let played = GROUPS.iter().flat_map(|(_, alerts)| alerts.iter().copied());
    let drilled: Vec<&str> = played.chain(NOT_PLAYED).collect();
    let rules: Vec<String> = Rules::read().alerts.into_keys().collect();
    let once: BTreeSet<&str> = drilled.iter().copied().collect();
    assert_eq!(once.len(), drilled.len(), "an alert is in two groups");
    assert_eq!(
        once.into_iter().collect::<Vec<_>>(),
        rules,
        "a new rule is entered above, with what brings it about"
    );
    assert!(SHORT.iter().all(|short| GROUPS.iter().any(|(group, _)| group == short)));
}

#[test]
fn promtool_confirms_each_rule_around_its_bound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
    let mut said = String::new();
    assert!(promtool(&folder, &["test", "rules", "alerts_test.yml"], &mut said), "{said}");
}

#[test]
fn each_alert_fires_on_its_cause() {
    let asked = std::env::var("ONCEWAY_ALERTS").unwrap_or_else(|_| SHORT.join(","));
    let wanted = |group: &str| asked == "all" || asked.split(',').any(|name| name == group);
    let groups: Vec<_> = GROUPS.into_iter().filter(|(group, _)| wanted(group)).collect();
    assert!(!groups.is_empty(), "ONCEWAY_ALERTS is all, or names groups, separated by commas");
    let Some(server) = server() else { return };
    run(async {
        let _beside = beside().await;
        let began = Instant::now();
        let stage = Stage::set_up(&server).await;
        eprintln!("three regions and Prometheus: {:.1} s", began.elapsed().as_secs_f64());
        healthy(&stage).await;
        for (group, alerts) in groups {
            let began = Instant::now();
            for name in alerts {
                stage.quiet(name, &[]).await;
            }
            play(group, &stage).await;
            for name in alerts {
                assert!(stage.has_seen(name), "{group} did not look for {name}");
            }
            if group == SHORT[0] {
                dashboard::shows(&stage.prometheus).await;
            }
            eprintln!("{group}: {:.1} s", began.elapsed().as_secs_f64());
        }
        stage.tear_down().await;
    });
}

/// Checks that no alert fires under load and without a fault, for a stretch. It may be the second
/// or third one on a machine that is too busy to answer a scrape.
async fn healthy(stage: &Stage) {
    let fired = Mutex::new(Vec::new());
    let stretch = async || {
        let before = stage.answered.load(SeqCst);
        wait::pause(HEALTHY).await;
        *fired.lock().unwrap() = stage.fired(HEALTHY).await;
        Ok((fired.lock().unwrap().is_empty() && stage.answered.load(SeqCst) > before + 40).then_some(()))
    };
    let stretch = wait::for_some("a stretch without alerts under load", BOUND, stretch).await;
    stretch.unwrap_or_else(|error| panic!("{error}: {:?}", fired.lock().unwrap()));
}

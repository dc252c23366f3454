//! Every alert of deploy/prometheus/alerts.yml fires: a real Prometheus looks at three real regions
//! in which each alert's cause is produced. The rules are those of the file, times divided.
//!
//! The short form plays the groups of [`SHORT`]; `ONCEWAY_ALERTS=all cargo test --test long
//! alerts::` plays all of them.

mod causes;
mod machines;
mod prometheus;
mod rules;
mod stage;

use crate::support::promtool::{promtool, server};
use crate::support::*;
use rules::Rules;
use stage::Stage;

type Cause = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
/// The causes, and the alerts that each must make fire. The last one leaves no deployment.
const GROUPS: [(&str, Cause, &[&str]); 17] = [
    (
        "clients and upstream",
        |stage| Box::pin(causes::play(stage)),
        &["OncewayKeysReused", "OncewayInProgress", "OncewayDeadLetters", "OncewayDoubtsGrow"],
    ),
    ("too many at once", |stage| Box::pin(causes::too_many(stage)), &["OncewayOverloaded"]),
    ("lost rows", |stage| Box::pin(machines::rows_lost(stage)), &["OncewayClaimsLost", "OncewayLateAnswers"]),
    ("a gateway dies", |stage| Box::pin(machines::gateway_dies(stage)), &["OncewayDown"]),
    ("a gateway alone", |stage| Box::pin(machines::gateway_alone(stage)), &["OncewayGatewayRunsNothing"]),
    ("a witness", |stage| Box::pin(machines::witness_without_vote(stage)), &["OncewayWitnessHasNoVote"]),
    ("a stranger", |stage| Box::pin(machines::stranger(stage)), &["OncewayPeerRefused"]),
    ("settings that differ", |stage| Box::pin(machines::settings_differ(stage)), &["OncewaySettingsDiffer"]),
    ("a store of errors", |stage| Box::pin(causes::of_errors(stage)), &causes::ERRORS),
    ("a sick upstream", |stage| Box::pin(machines::upstream_sick(stage)), &["OncewayUpstreamSick"]),
    ("a slow store", |stage| Box::pin(causes::slow(stage)), &causes::SLOW),
    ("a silent store", |stage| Box::pin(causes::silent(stage)), &["OncewayStoreSilent"]),
    (
        "left alone",
        |stage| Box::pin(machines::left_alone(stage)),
        &[
            "OncewayCertificateExpires",
            "OncewayCertificateExpiresSoon",
            "OncewayConfigNotCurrent",
            "OncewayDoubtsStay",
            "OncewayJobsWait",
        ],
    ),
    ("a window", |stage| Box::pin(causes::window(stage)), &causes::WINDOW),
    (
        "beyond",
        |stage| Box::pin(causes::beyond(stage)),
        &["OncewayLossNeedsOperator", "OncewayNeedsOperator", "OncewayDoubleRuns"],
    ),
    ("an unexplained double", |stage| Box::pin(causes::unexplained(stage)), &["OncewayUnexplainedDoubles"]),
    (
        "ruins",
        |stage| Box::pin(causes::ruins(stage)),
        &["OncewaySlotGrows", "OncewaySlotLost", "OncewayRegionRunsNothing"],
    ),
];
/// Alerts that are not played. This one looks back a day and waits for six hours, which is half an
/// hour when divided. `seeing` tests its rule on both sides of its bound; that has to do.
const NOT_PLAYED: [&str; 1] = ["OncewayAuditBehind"];
const SHORT: [&str; 4] = ["clients and upstream", "too many at once", "lost rows", "a gateway dies"];
/// The time for which a healthy deployment is watched.
const HEALTHY: Duration = Duration::from_secs(8);

#[test]
fn every_alert_rule_has_one_drill() {
    let played = GROUPS.iter().flat_map(|(.., alerts)| alerts.iter().copied());
    let drilled: Vec<&str> = played.chain(NOT_PLAYED).collect();
    let rules: Vec<String> = Rules::read().alerts.into_keys().collect();
    let once: BTreeSet<&str> = drilled.iter().copied().collect();
    assert_eq!(once.len(), drilled.len(), "an alert is in two groups");
    let entered: Vec<&str> = once.into_iter().collect();
    assert_eq!(entered, rules, "a new rule is entered above, with what brings it about");
    assert!(SHORT.iter().all(|short| GROUPS.iter().any(|(group, ..)| group == short)));
}

#[test]
fn promtool_confirms_each_rule_around_its_bound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
    promtool(&folder, &["test", "rules", "alerts_test.yml"]).unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn each_alert_fires_on_its_cause() {
    let asked = std::env::var("ONCEWAY_ALERTS").unwrap_or_else(|_| SHORT.join(","));
    let wanted = |group: &str| asked == "all" || asked.split(',').any(|name| name == group);
    let groups: Vec<_> = GROUPS.into_iter().filter(|(group, ..)| wanted(group)).collect();
    assert!(!groups.is_empty(), "ONCEWAY_ALERTS is all, or names groups, separated by commas");
    let Some(server) = server() else { return };
    run(async {
        let _beside = beside().await;
        let began = Instant::now();
        let stage = Stage::set_up(&server).await;
        eprintln!("three regions and Prometheus: {:.1} s", began.elapsed().as_secs_f64());
        healthy(&stage).await;
        for (group, cause, alerts) in groups {
            let began = Instant::now();
            stage.all_quiet(alerts, &[]).await;
            cause(&stage).await;
            for name in alerts {
                assert!(stage.seen.lock().unwrap().contains(*name), "{group} did not look for {name}");
            }
            if group == SHORT[0] {
                prometheus::shows_the_dashboard(&stage.prometheus).await;
            }
            eprintln!("{group}: {:.1} s", began.elapsed().as_secs_f64());
        }
        stage.tear_down().await;
    });
}

/// Fails unless, within three tries of a busy machine, a stretch under load has no alert.
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

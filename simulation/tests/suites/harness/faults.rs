//! Faults of protected services that keep their promise: whatever is late is over with its attempt.
//!
//! A scenario plays each fault, and the checker judges it. Nothing here may break an invariant.

use std::sync::Arc;

use simulation::Outcome;
use simulation::play::play;

use super::reference::scenario;

/// Plays a fault at us-east, whose keys are probed.
/// Their clients ask for longer than a doubt lasts.
fn played(kind: &str, how: &str) -> Outcome {
    let text = format!(
        r#"
        title = "one fault"
        ring = "rings/three.toml"
        routes = "rings/routes-settling.toml"
        length = "40s"
        [[workload]]
        name = "charges"
        path = "/v1/charges"
        rate = 5
        near = ["us-east"]
        again = 20
        attempts = 100
        gives_up = "40s"
        [[fault]]
        kind = "{kind}"
        region = "us-east"
        at = "2s"
        lasts = "30s"
        {how}
        "#
    );
    let outcome = play(&Arc::new(scenario(&text).unwrap()), 1, false).outcome;
    assert!(outcome.faults.iter().any(|fault| fault.kind == kind && fault.mattered), "{:?}", outcome.faults);
    assert_eq!(outcome.breaches, []);
    outcome
}

#[test]
fn a_late_effect_happens_before_its_attempt_ends() {
    for how in ["status = 503", "status = 408\nsays_when = true"] {
        let outcome = played("upstream-fail-then-effect", &format!("{how}\nby = \"1h\""));
        assert!(outcome.happened["in doubt"] > 10, "{:?}", outcome.happened);
        assert_eq!(outcome.keys.doubles, 0);
    }
}

#[test]
fn a_service_that_says_when_to_come_back_did_nothing() {
    let outcome = played("upstream-fail-then-effect", "status = 503\nsays_when = true\nby = \"1h\"");
    assert!(outcome.requests.refused.contains_key("upstream-503"), "{:?}", outcome.requests);
    assert_eq!(outcome.keys.doubles, 0);
}

#[test]
fn a_lagging_probe_shows_effects_before_their_attempt_ends() {
    let drops = "[[fault]]\nkind = \"upstream-effect-then-drop\"\nregion = \"us-east\"\nat = \"2s\"";
    let outcome = played("probes-lag", &format!("by = \"1h\"\n{drops}\nlasts = \"10s\""));
    assert!(outcome.happened["in doubt"] > 5, "{:?}", outcome.happened);
    assert_eq!(outcome.keys.doubles, 0);
}

#[test]
fn a_slow_connection_is_made_or_carries_nothing() {
    for by in ["2s", "4s"] {
        let outcome = played("upstream-connects-slowly", &format!("by = \"{by}\""));
        assert_eq!(outcome.keys.doubles, 0);
    }
}

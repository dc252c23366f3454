//! Failover of the real gateway over the simulated ports: directed scenarios, each with the
//! invariants checked at each of its steps.
//! `takeover/trio.rs` has the deployment; `simulation::checker` has the invariants. Time is
//! virtual.

mod break_glass;
mod copies;
mod doubts;
mod early;
mod gates;
mod healths;
mod hostile;
mod jobs;
mod liars;
mod losses;
mod members;
mod moves;
mod reboots;
mod rebuilds;
mod rehearsals;
mod trio;

use std::panic::catch_unwind;

use onceway::protocol::plant::{Check, is_disabled, planted};

use crate::gateway::{approval, doubles, upkeep};

/// Each check of the protocol that shows in a whole deployment, taken out: the scenario of its rule
/// then fails. `protocol::plant::tests` does the same for single machines.
#[test]
fn each_rules_scenario_fails_without_its_check() {
    let rules: &[(Check, fn())] = &[
        (Check::Tenure, gates::a_handler_that_slept_through_takeover_and_return_sends_nothing),
        (Check::GateInClaim, gates::a_claim_that_comes_after_the_seal_is_refused),
        (Check::MarksAccumulate, moves::marks_accumulate_over_two_moves),
        (Check::Import, copies::the_gainer_fetches_rows_from_another_survivor),
        (Check::Conversion, moves::lodged_claims_move_with_their_arcs),
        (Check::EscrowGate, gates::a_lodging_that_comes_after_the_loss_is_refused),
        (Check::HeartbeatOfEpoch, early::no_heartbeat_of_the_new_targets_time_denies_the_proof),
        (Check::SealedAsked, early::no_heartbeat_of_the_new_targets_time_denies_the_proof),
        (Check::SealedAsked, copies::a_losers_rows_raise_a_frontier),
        (Check::Over, doubts::a_release_at_risk_does_not_hide_the_lost_regions_doubt),
        (Check::BootClock, gates::a_region_that_wakes_after_its_takeover_sends_nothing),
        (Check::LeaseAtSend, gates::a_handler_that_slept_through_takeover_and_return_sends_nothing),
        (Check::WholeRows, copies::gained_keys_open_when_the_copy_is_complete),
        (Check::WholeEpoch, copies::a_region_that_is_being_copied_is_not_heard_of),
        (Check::WholeEpoch, copies::a_new_target_that_is_copying_proves_no_absence),
        (Check::WholeEpoch, copies::a_target_that_is_back_and_copying_proves_no_absence),
        (Check::WholeRows, copies::a_heartbeat_ahead_of_its_rows_makes_no_frontier),
        (Check::ToldOfRecords, early::a_region_hands_on_lodged_claims_before_its_frontier),
        (Check::WindowBegins, losses::a_successor_runs_lost_keys_after_lease_and_window),
        (Check::LatestAsked, approval::a_promoted_standby_fetches_its_rows_before_it_serves),
        (Check::BootInGate, approval::nothing_is_sent_after_a_restart_until_the_boot_is_approved),
        (Check::Audit, doubles::an_unmarked_double_is_found_wherever_its_rows_meet),
        (Check::Journal, doubles::an_unmarked_double_is_found_wherever_its_rows_meet),
        (Check::MaskingKept, upkeep::a_row_that_masks_a_doubt_stays_until_that_is_gone),
    ];
    let mut unnoticed = Vec::new();
    for (plant, scenario) in rules {
        if planted(*plant, || catch_unwind(scenario)).is_ok() {
            unnoticed.push(plant);
        }
        assert!(!is_disabled(*plant), "it is back");
    }
    assert!(unnoticed.is_empty(), "nothing notices that these are gone: {unnoticed:?}");
}

//! Each check of the protocol that shows in a whole deployment, taken out: the scenario of its rule
//! then fails.
//!
//! `protocol::plant` lists the checks. The scenarios are beside their rules, some of
//! them in the suite `gateway`.
//! `protocol::plant::tests` does the same for single machines. It must not plant two at a time.

use std::panic::catch_unwind;

use onceway::protocol::plant::{Check, is_disabled, planted};

use super::{copies, early, gates, imports, losses, moves, pauses, risk};
use crate::gateway::{approval, doubles, upkeep};

#[test]
fn without_its_check_the_scenario_of_each_rule_fails() {
    let rules: &[(Check, fn())] = &[
        (Check::Tenure, pauses::a_handler_that_slept_through_takeover_and_return_sends_nothing),
        (Check::GateInClaim, gates::a_claim_that_comes_after_the_seal_is_refused),
        (Check::MarksAccumulate, moves::marks_accumulate_over_two_moves),
        (Check::Import, imports::the_gainer_fetches_what_another_survivor_has),
        (Check::Conversion, moves::what_was_lodged_moves_on_with_the_arcs),
        (Check::EscrowGate, gates::a_lodging_that_comes_after_the_loss_is_refused),
        (Check::HeartbeatOfEpoch, early::no_heartbeat_of_the_new_targets_time_denies_the_proof),
        (Check::SealedAsked, early::no_heartbeat_of_the_new_targets_time_denies_the_proof),
        (Check::SealedAsked, imports::a_frontier_is_raised_by_what_a_loser_has_seen),
        (Check::Over, risk::a_release_at_risk_does_not_hide_the_lost_regions_doubt),
        (Check::BootClock, pauses::a_region_that_wakes_after_its_takeover_sends_nothing),
        (Check::LeaseAtSend, pauses::a_handler_that_slept_through_takeover_and_return_sends_nothing),
        (Check::WholeRows, copies::what_is_gained_opens_when_the_copy_is_whole),
        (Check::WholeEpoch, copies::a_region_that_is_being_copied_is_not_heard_of),
        (Check::WholeEpoch, copies::a_new_target_that_is_copying_proves_no_absence),
        (Check::WholeEpoch, copies::a_target_that_is_back_and_copying_proves_no_absence),
        (Check::WholeRows, copies::a_heartbeat_ahead_of_its_rows_makes_no_frontier),
        (Check::ToldOfRecords, early::who_is_asked_for_its_frontier_hands_on_what_was_lodged_with_it_first),
        (Check::WindowBegins, losses::a_lost_regions_keys_run_on_their_successor_once_after_lease_and_window),
        (Check::LatestAsked, approval::a_promoted_standby_has_what_its_peers_have_of_it_before_it_serves),
        (Check::BootInGate, approval::nothing_is_sent_after_a_restart_until_the_boot_is_approved),
        (Check::Audit, doubles::a_double_that_no_claim_speaks_of_is_found_wherever_its_rows_meet),
        (Check::Journal, doubles::a_double_that_no_claim_speaks_of_is_found_wherever_its_rows_meet),
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

//! Each check, taken out, makes the test of its rule fail: so the test does test it.
//!
//! The exhaustive model (`simulation/tests/long/model.rs`) plants the same.

use std::panic::catch_unwind;

use super::super::{authority, double, escrow, lease, opening, register, round, snapshot};
use super::*;

#[test]
fn each_rules_test_fails_without_its_check() {
    let rules: &[(Check, fn())] = &[
        (
            Check::GrantOnAccept,
            register::tests::a_running_grant_blocks_a_view_that_takes_keys_from_its_holder,
        ),
        (Check::NothingNewer, register::tests::nothing_is_granted_below_what_was_accepted),
        (Check::UntilFromBefore, lease::tests::a_majority_lease_counts_from_before_its_request),
        (Check::Tenure, lease::tests::a_reply_cannot_bring_a_lapsed_lease_back_unnoticed),
        (Check::ReleaseBound, register::tests::a_release_of_before_opens_no_later_change),
        (Check::MarksAccumulate, opening::tests::every_newest_mark_counts_not_only_the_predecessors),
        (Check::Import, opening::tests::every_serving_region_is_asked_for_lost_rows),
        (Check::SealedAsked, opening::tests::a_sealed_region_is_asked_for_possibly_missing_claims),
        (Check::Conversion, opening::tests::escrow_rows_become_records_before_anything_opens),
        (Check::HeartbeatOfEpoch, escrow::tests::three_a_heartbeat_has_come_from_then_or_later),
        (Check::ForeignFirst, round::tests::a_proposer_first_finishes_another_ones_change),
        (
            Check::NewVoterSilent,
            register::tests::a_new_voter_answers_nothing_but_readers_until_it_is_admitted,
        ),
        (Check::PutBack, register::tests::an_acceptor_that_may_have_forgotten_is_another_one),
        (Check::LateRenewal, register::tests::a_late_renewal_never_downgrades_a_grants_view),
        (Check::VotersBefore, round::tests::finishing_a_view_needs_the_previous_views_voters_too),
        (Check::VotersBefore, register::tests::both_voter_sets_must_choose_a_voter_change),
        (Check::Quiet, lease::tests::a_lapse_ends_the_tenure_and_is_followed_by_quiet),
        (Check::ClosedWhenGained, authority::tests::keys_gained_again_wait_again),
        (Check::SkippedView, authority::tests::after_a_skipped_view_every_key_counts_as_gained),
        (Check::PendingClosed, authority::tests::keys_given_up_stay_closed_until_a_new_view),
        (Check::LeaseOfOlderView, authority::tests::an_older_lease_covers_the_keys_owned_under_it),
        (Check::LossUntilHeard, authority::tests::a_returned_region_is_a_risk_until_heard_of),
        (Check::Window, opening::tests::a_loss_waits_for_its_window),
        (Check::LeaseAtSend, snapshot::tests::a_send_needs_the_lease_and_the_tenure_of_its_claim),
        (Check::Audit, double::tests::two_answers_are_a_double_whatever_their_claims_say),
    ];
    for (plant, test) in rules {
        assert!(planted(*plant, || catch_unwind(test)).is_err(), "nothing notices that {plant:?} is gone");
        assert!(!is_disabled(*plant), "it is back");
    }
}

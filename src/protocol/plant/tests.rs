//! Each check, taken out, makes the test of its rule fail: so the test does test it.
//!
//! The exhaustive model (`simulation/tests/long/model.rs`) plants the same. This file must not
//! plant on two threads.

use std::panic::catch_unwind;

use super::super::{authority, double, escrow, lease, opening, register, round, snapshot};
use super::*;

#[test]
fn without_its_check_the_test_of_each_rule_fails() {
    let rules: &[(Check, fn())] = &[
        (
            Check::GrantOnAccept,
            register::tests::a_running_grant_blocks_a_view_that_takes_keys_from_its_holder,
        ),
        (Check::NothingNewer, register::tests::nothing_is_granted_below_what_was_accepted),
        (Check::UntilFromBefore, lease::tests::it_is_held_at_a_majority_from_before_it_was_asked_for),
        (Check::Tenure, lease::tests::a_reply_cannot_bring_a_lapsed_lease_back_unnoticed),
        (Check::ReleaseBound, register::tests::a_release_of_before_opens_no_later_change),
        (Check::MarksAccumulate, opening::tests::every_newest_mark_counts_not_only_the_predecessors),
        (Check::Import, opening::tests::everybody_who_serves_is_asked_what_it_has_of_the_lost_one),
        (Check::SealedAsked, opening::tests::a_sealed_region_is_asked_while_it_may_hold_what_is_not_here),
        (Check::Conversion, opening::tests::escrow_rows_become_records_before_anything_opens),
        (Check::HeartbeatOfEpoch, escrow::tests::three_a_heartbeat_has_come_from_then_or_later),
        (Check::ForeignFirst, round::tests::what_somebody_else_began_is_finished_unchanged_first),
        (
            Check::NewVoterSilent,
            register::tests::a_new_voter_answers_nothing_but_readers_until_it_is_admitted,
        ),
        (Check::PutBack, register::tests::an_acceptor_that_may_have_forgotten_is_another_one),
        (Check::LateRenewal, register::tests::a_late_renewal_does_not_put_an_older_view_in_a_grants_place),
        (Check::VotersBefore, round::tests::who_finishes_a_view_asks_the_voters_of_the_view_before_it_too),
        (Check::VotersBefore, register::tests::a_change_of_voters_is_chosen_by_both_sets_whoever_reads),
        (Check::Quiet, lease::tests::a_lapse_ends_the_tenure_and_is_followed_by_quiet),
        (Check::ClosedWhenGained, authority::tests::what_was_gained_again_waits_again),
        (Check::SkippedView, authority::tests::where_a_view_was_skipped_everything_counts_as_gained),
        (Check::PendingClosed, authority::tests::what_is_given_up_is_closed_until_a_view_ends_it),
        (
            Check::LeaseOfOlderView,
            authority::tests::a_lease_of_an_older_view_is_good_for_what_was_owned_under_it,
        ),
        (
            Check::LossUntilHeard,
            authority::tests::a_region_that_is_back_is_a_risk_until_it_was_heard_of_since,
        ),
        (Check::Window, opening::tests::a_loss_waits_for_its_window),
        (Check::LeaseAtSend, snapshot::tests::a_send_needs_the_lease_and_the_tenure_of_its_claim),
        (Check::Audit, double::tests::two_answers_are_a_double_whatever_their_claims_say),
    ];
    for (plant, test) in rules {
        assert!(planted(*plant, || catch_unwind(test)).is_err(), "nothing notices that {plant:?} is gone");
        assert!(!is_disabled(*plant), "it is back");
    }
}

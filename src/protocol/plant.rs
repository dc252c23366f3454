//! Plants: each takes one safety check out, so that a test can show that another check notices
//! (docs/protocol.md#invariants).
//!
//! A check asks [`is_disabled`] beside itself. Plants exist only in tests and in the simulation
//! (the feature `plant`). Elsewhere [`is_disabled`] is always false and leaves no code.

named! {
    "A check that can be taken out."
    Check
    GrantOnAccept "grant-on-accept" "An acceptor asks running grants before it accepts."
    NothingNewer "nothing-newer" "An acceptor grants nothing below what it has accepted."
    UntilFromBefore "until-from-before" "A lease counts from before its renewal was sent."
    Tenure "tenure" "A lapse, or the loss of keys, ends the tenure."
    GateInClaim "gate-in-claim" "A claim compares the gate in the statement that writes."
    ReleaseBound "release-bound" "A release is for one change of one view, and no consent to a loss."
    MarksAccumulate "marks-accumulate" "Every region's newest mark counts."
    Import "import" "Survivors are asked what they have of a lost region."
    Conversion "conversion" "Escrow rows of a lost region become records before anything opens."
    EscrowGate "escrow-gate" "Where a claim is lodged, the view is compared, in the statement that stores it too."
    EscrowMeaning "escrow-meaning" "Absence proves something only of a route that means the same in all views, and here."
    HeartbeatOfEpoch "heartbeat-of-epoch" "A heartbeat has come from the epoch that a proof by escrow begins with."
    ForeignFirst "foreign-first" "What somebody else began is finished first."
    BootInGate "boot-in-gate" "A claim passes only while the running server is the approved one."
    Over "over" "A row hides another origin's only if it names it, in the statement that claims too."
    NewVoterSilent "new-voter-silent" "A new voter is silent for one grant."
    BootClock "boot-clock" "Processes go by a clock that counts the time in which they slept."
    MaskingKept "masking-kept" "What masks another origin's open row outlives it."
    StatusEndsNothing "status-ends-nothing" "A status that leaves a key in doubt does not end its attempt: hold and settle time are waited for."
    SettleTimeKept "settle-time-kept" "\"Did not happen\" counts only after the settle time that stands in the attempt's row."
    LodgedLives "lodged-lives" "A lodged claim is kept for the whole life of its key, tombstone included."
    AgreedLease "agreed-lease" "No lease is longer than was agreed on, whatever a region's own file says."
    LateRenewal "late-renewal" "A renewal that was long on its way puts no older view in a grant's place."
    VotersBefore "voters-before" "A majority is of those who vote, and of those who voted before."
    Quiet "quiet" "Who could not hold its lease, or met a half agreed view that takes its keys, asks for nothing that blocks a successor; and a new start that asks is not declared lost."
    ClosedWhenGained "closed-when-gained" "What was gained stays closed until the gate opens."
    SkippedView "skipped-view" "Where a view was skipped, every key counts as gained."
    PendingClosed "pending-closed" "A key that is being given up is not run."
    LeaseOfOlderView "lease-of-older-view" "A lease of an older view is good for what was owned under it, and for nothing else."
    LossUntilHeard "loss-until-heard" "A region that is back is a risk until it was heard of."
    SealedAsked "sealed-asked" "A sealed region that may hold what is needed of a lost one is asked for it."
    Window "window" "The window of a loss is waited for."
    WindowBegins "window-begins" "The window of a loss begins when that is adopted, not at the last contact."
    LeaseAtSend "lease-at-send" "The lease is asked for between the claim and the send, and not before alone."
    Journal "journal" "A store that shows two attempts of a key that both ran journals it."
    Audit "audit" "A key that two regions ran is found by its rows, whatever its claims say of a risk."
    Fingerprint "fingerprint" "A key that was used for another request is refused."
    StandInWhole "stand-in-whole" "A record that stands in for another region's attempt says what became of it, in the statement that makes it."
    NamedAnswered "named-answered" "Nothing is concluded of an own attempt while one that it names has not answered."
    ObservedTime "observed-time" "Holds, settle times and lives end by the time that gateways saw pass, and by no date."
    AwayRemembered "away-remembered" "What ran since a region is away is not forgotten before its rows are here."
    OpenImport "open-import" "An imported row that is open goes only once something answers for it."
    AgreedLife "agreed-life" "A loss is a risk for the longest life that the regions ever agreed on, whatever a region's files promise now."
    ForgottenTokens "forgotten-tokens" "A key that was forgotten begins above every token that it ever had."
    WholeRows "whole-rows" "A heartbeat covers, and makes a frontier, here and where others are told of it, once all rows before it are here: not while they are copied."
    WholeEpoch "whole-epoch" "A region is heard of, and absence proven, by a heartbeat whose rows are here: not while they are copied."
    ToldOfRecords "told-of-records" "A region that is asked what it has of a lost one first makes records of the claims that it holds."
    PutBack "put-back" "A witness whose file was put back is another acceptor: it has forgotten promises."
    RestoredVotes "restored-votes" "An acceptor promises nothing before the start of its store is approved: it may have forgotten promises."
    LatestAsked "latest-asked" "A store on a new timeline takes in what its peers have of it before it is approved."
    LagRemembered "lag-remembered" "The lag of each store survives a restart, and a window is made of it."
}

#[cfg(any(test, feature = "plant"))]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Check>> = const { std::cell::Cell::new(None) };
}

/// True if this check is taken out, on this thread.
#[cfg(any(test, feature = "plant"))]
pub fn is_disabled(check: Check) -> bool {
    PLANTED.get() == Some(check)
}

/// Always false: no check is ever taken out.
#[cfg(not(any(test, feature = "plant")))]
pub const fn is_disabled(_check: Check) -> bool {
    false
}

/// Runs `act` with one check taken out, on this thread. It is back afterwards, panic or not.
#[cfg(any(test, feature = "plant"))]
pub fn planted<T>(check: Check, act: impl FnOnce() -> T) -> T {
    struct Back(Option<Check>);
    impl Drop for Back {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }
    let _back = Back(PLANTED.replace(Some(check)));
    act()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::{authority, double, escrow, lease, opening, register, round, snapshot};

    /// So each test does test its rule. `simulation/tests/long/model.rs` plants the same.
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
            assert!(
                planted(*plant, || catch_unwind(test)).is_err(),
                "nothing notices that {plant:?} is gone"
            );
            assert!(!is_disabled(*plant), "it is back");
        }
    }
}

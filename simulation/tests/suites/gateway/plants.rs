//! Checks of the request path, taken out: the test of each rule then fails.
//!
//! `protocol::plant` lists them. The suite `takeover` does the same for checks that show only when
//! regions are lost. It must not plant two at a time.

use std::panic::catch_unwind;

use onceway::protocol::plant::{Plant, planted, removed};

use super::{approval, doubles, upkeep};

#[test]
fn without_its_check_the_test_of_each_rule_fails() {
    let rules: &[(Plant, fn())] = &[
        (Plant::LatestAsked, approval::a_promoted_standby_has_what_its_peers_have_of_it_before_it_serves),
        (Plant::BootInGate, approval::nothing_is_sent_after_a_restart_until_the_boot_is_approved),
        (Plant::Audit, doubles::a_double_that_no_claim_speaks_of_is_found_wherever_its_rows_meet),
        (Plant::Journal, doubles::a_double_that_no_claim_speaks_of_is_found_wherever_its_rows_meet),
        (Plant::MaskingKept, upkeep::a_row_that_masks_a_doubt_stays_until_that_is_gone),
    ];
    for (plant, test) in rules {
        assert!(planted(*plant, || catch_unwind(test)).is_err(), "nothing notices that {plant:?} is gone");
        assert!(!removed(*plant), "it is back");
    }
}

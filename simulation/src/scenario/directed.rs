//! For each safety check the scenario in which its absence shows within a few seeds, whatever else is played.
//!
//! Neighbours: `protocol::plant` names the checks; `onceway-sim seeds --plant` and `onceway-sim plants` play these beside what was asked for. Each
//! holds with all checks in place. It must not know how a check is removed.

use onceway::protocol::plant::Plant;

/// A scenario that comes along, and how many of its seeds are enough, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directed {
    /// The scenario's name.
    pub scenario: &'static str,
    /// How many seeds.
    pub seeds: u64,
}

const fn seeds(seeds: u64, scenario: &'static str) -> Directed {
    Directed { scenario, seeds }
}

/// The scenario that notices that this check is gone.
pub fn directed(check: Plant) -> Directed {
    match check {
        Plant::GrantOnAccept => seeds(2, "late-rows"),
        Plant::NothingNewer => seeds(2, "late-rows"),
        Plant::UntilFromBefore => seeds(2, "late-rows"),
        Plant::Tenure => seeds(2, "sleeping-handler"),
        Plant::GateInClaim => seeds(2, "late-rows"),
        Plant::ReleaseBound => seeds(2, "second-lease"),
        Plant::MarksAccumulate => seeds(2, "late-rows"),
        Plant::Import => seeds(2, "late-rows"),
        Plant::Conversion => seeds(2, "late-rows"),
        Plant::EscrowGate => seeds(2, "late-rows"),
        Plant::HeartbeatOfEpoch => seeds(2, "new-target"),
        Plant::ForeignFirst => seeds(2, "late-rows"),
        Plant::BootInGate => seeds(2, "late-rows"),
        Plant::Over => seeds(2, "late-rows"),
        Plant::NewVoterSilent => seeds(2, "late-rows"),
        Plant::BootClock => seeds(2, "late-rows"),
        Plant::MaskingKept => seeds(2, "short-lived"),
        Plant::LateRenewal => seeds(2, "late-renewal"),
        Plant::VotersBefore => seeds(2, "new-voter"),
        Plant::Quiet => seeds(2, "late-rows"),
        Plant::ClosedWhenGained => seeds(2, "late-rows"),
        Plant::SkippedView => seeds(2, "skipped-view"),
        Plant::PendingClosed => seeds(2, "late-rows"),
        Plant::LeaseOfOlderView => seeds(2, "late-rows"),
        Plant::LossUntilHeard => seeds(2, "late-rows"),
        Plant::SealedAsked => seeds(2, "sealed-keeper"),
        Plant::Window => seeds(2, "late-rows"),
    }
}

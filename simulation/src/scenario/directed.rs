//! The scenario for each safety check in which its absence shows within a few seeds.
//!
//! `onceway-sim seeds --plant` and `onceway-sim plants` play these beside the requested scenarios.
//! Each holds with all checks in place. It must not know how a check is removed.

use onceway::protocol::plant::Plant;

/// A scenario of the harness, and the number of seeds that are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directed {
    pub scenario: &'static str,
    /// The first seed: where chance decides, one that noticed when it was last looked for.
    pub from: u64,
    pub seeds: u64,
}

const fn seeds(seeds: u64, scenario: &'static str) -> Directed {
    seeds_from(0, seeds, scenario)
}

const fn seeds_from(from: u64, seeds: u64, scenario: &'static str) -> Directed {
    Directed { scenario, from, seeds }
}

/// The scenario that notices the removal of this check. A scenario of chance gets enough seeds that
/// some still notice after a change of the protocol. Such a change lets each seed go another way.
pub fn directed(check: Plant) -> Directed {
    match check {
        Plant::GrantOnAccept => seeds(2, "second-lease"),
        Plant::NothingNewer => seeds(2, "stale-view"),
        Plant::UntilFromBefore => seeds(2, "slow-links"),
        Plant::Tenure => seeds(2, "sleeping-handler"),
        Plant::GateInClaim => seeds(2, "slow-store"),
        Plant::ReleaseBound => seeds(2, "second-lease"),
        Plant::MarksAccumulate => seeds(2, "two-moves"),
        Plant::Import => seeds(2, "sealed-keeper"),
        Plant::Conversion => seeds(2, "sealed-keeper"),
        Plant::EscrowGate => seeds(20, "swarm"),
        Plant::EscrowMeaning => seeds(2, "renamed-routes"),
        Plant::HeartbeatOfEpoch => seeds(2, "new-target"),
        Plant::ForeignFirst => seeds(2, "lost-news"),
        Plant::BootInGate => seeds(2, "restarts"),
        Plant::Over => seeds(2, "hidden-doubt"),
        Plant::NewVoterSilent => seeds(2, "disk-lost"),
        Plant::BootClock => seeds(2, "long-pause"),
        Plant::MaskingKept => seeds(2, "short-lived"),
        Plant::StatusEndsNothing => seeds(2, "proxy-gives-up"),
        Plant::SettleTimeKept => seeds(2, "shorter-settling"),
        Plant::LodgedLives => seeds(2, "lodged-lives"),
        Plant::AgreedLease => seeds(2, "raised-lease"),
        Plant::LateRenewal => seeds(2, "late-renewal"),
        Plant::VotersBefore => seeds(2, "new-voter"),
        Plant::Quiet => seeds(2, "lost-grants"),
        Plant::ClosedWhenGained => seeds(1, "late-rows"),
        Plant::SkippedView => seeds(2, "skipped-view"),
        Plant::PendingClosed => seeds(5, "late-rows"),
        Plant::LeaseOfOlderView => seeds_from(34, 120, "swarm"),
        Plant::LossUntilHeard => seeds_from(2, 30, "late-rows"),
        Plant::SealedAsked => seeds(2, "sealed-keeper"),
        Plant::Window => seeds(1, "late-rows"),
        Plant::WindowBegins => seeds(1, "late-rows"),
        Plant::LeaseAtSend => seeds(2, "sleeping-handler"),
        Plant::Journal => seeds(10, "late-rows"),
        Plant::Audit => seeds(10, "late-rows"),
        Plant::Fingerprint => seeds(2, "reused-keys"),
        Plant::StandInWhole => seeds(2, "half-a-word"),
        Plant::NamedAnswered => seeds(2, "half-a-word"),
        Plant::ObservedTime => seeds(2, "rebooted"),
        Plant::AwayRemembered => seeds(2, "late-job"),
        Plant::OpenImport => seeds(2, "open-import"),
        Plant::AgreedLife => seeds(2, "shorter-lives"),
        Plant::ForgottenTokens => seeds(2, "used-again"),
        Plant::WholeRows => seeds(2, "copied-rows"),
        Plant::WholeEpoch => seeds(2, "copied-target"),
        Plant::ToldOfRecords => seeds(4, "asked-first"),
        Plant::PutBack => seeds(2, "put-back"),
        Plant::LatestAsked => seeds(2, "promoted"),
        Plant::LagRemembered => seeds(2, "lag-remembered"),
        Plant::RestoredVotes => seeds_from(4, 100, "swarm"),
    }
}

//! The scenario for each safety check in which its absence shows within a few seeds.
//!
//! Commands play these beside the requested scenarios. Each holds with all checks in place.

use onceway::protocol::plant::Check;

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
pub fn directed(check: Check) -> Directed {
    match check {
        Check::GrantOnAccept | Check::ReleaseBound => seeds(2, "second-lease"),
        Check::NothingNewer => seeds(2, "stale-view"),
        Check::UntilFromBefore => seeds(2, "slow-links"),
        Check::Tenure | Check::LeaseAtSend => seeds(2, "sleeping-handler"),
        Check::GateInClaim => seeds(2, "slow-store"),
        Check::MarksAccumulate => seeds(2, "two-moves"),
        Check::Import | Check::Conversion | Check::SealedAsked => seeds(2, "sealed-keeper"),
        Check::EscrowGate => seeds(20, "swarm"),
        Check::EscrowMeaning => seeds(2, "renamed-routes"),
        Check::HeartbeatOfEpoch => seeds(2, "new-target"),
        Check::ForeignFirst => seeds(2, "lost-news"),
        Check::BootInGate => seeds(2, "restarts"),
        Check::Over => seeds(2, "hidden-doubt"),
        Check::NewVoterSilent => seeds(2, "disk-lost"),
        Check::BootClock => seeds(2, "long-pause"),
        Check::MaskingKept => seeds(2, "short-lived"),
        Check::StatusEndsNothing => seeds(2, "proxy-gives-up"),
        Check::SettleTimeKept => seeds(2, "shorter-settling"),
        Check::LodgedLives => seeds(2, "lodged-lives"),
        Check::AgreedLease => seeds(2, "raised-lease"),
        Check::LateRenewal => seeds(2, "late-renewal"),
        Check::VotersBefore => seeds(2, "new-voter"),
        Check::Quiet => seeds(2, "lost-grants"),
        Check::ClosedWhenGained | Check::Window | Check::WindowBegins => seeds(1, "late-rows"),
        Check::SkippedView => seeds(2, "skipped-view"),
        Check::PendingClosed => seeds(5, "late-rows"),
        Check::LeaseOfOlderView => seeds_from(34, 120, "swarm"),
        Check::LossUntilHeard => seeds_from(2, 30, "late-rows"),
        Check::Journal | Check::Audit => seeds(10, "late-rows"),
        Check::Fingerprint => seeds(2, "reused-keys"),
        Check::StandInWhole | Check::NamedAnswered => seeds(2, "half-a-word"),
        Check::ObservedTime => seeds(2, "rebooted"),
        Check::AwayRemembered => seeds(2, "late-job"),
        Check::OpenImport => seeds(2, "open-import"),
        Check::AgreedLife => seeds(2, "shorter-lives"),
        Check::ForgottenTokens => seeds(2, "used-again"),
        Check::WholeRows => seeds(2, "copied-rows"),
        Check::WholeEpoch => seeds(2, "copied-target"),
        Check::ToldOfRecords => seeds(4, "asked-first"),
        Check::PutBack => seeds(2, "put-back"),
        Check::LatestAsked => seeds(2, "promoted"),
        Check::LagRemembered => seeds(2, "lag-remembered"),
        Check::RestoredVotes => seeds_from(4, 100, "swarm"),
    }
}

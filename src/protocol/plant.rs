//! Breaches to plant: each takes one check out, so that a test can show that something else notices (protocol reference, sections 6 and 8).
//!
//! Neighbours: the checks ask [`removed`] beside themselves; tests plant with `planted`. Built only for tests (the feature `plant`): else
//! [`removed`] is always false and leaves no code. It must not be used for anything but taking a check out.

/// A check that can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// 1: an acceptor asks running grants before it accepts.
    GrantOnAccept,
    /// 2: an acceptor grants nothing below what it has accepted.
    NothingNewer,
    /// 3: a lease counts from before its renewal was sent.
    UntilFromBefore,
    /// 4: a lapse, or the loss of keys, ends the tenure.
    Tenure,
    /// 5: a claim compares the gate in the statement that writes.
    GateInClaim,
    /// 6: a release is for one change of one view.
    ReleaseBound,
    /// 7: every region's newest mark counts.
    MarksAccumulate,
    /// 8: survivors are asked what they have of a lost region.
    Import,
    /// 9: escrow rows of a lost region become records before anything opens.
    Conversion,
    /// 10: where a claim is lodged, the view is compared, in the statement that stores it too.
    EscrowGate,
    /// 11: a heartbeat has come from the epoch that a proof by escrow begins with.
    HeartbeatOfEpoch,
    /// 12: what somebody else began is finished first.
    ForeignFirst,
    /// 13: a claim passes only while the running server is the approved one.
    BootInGate,
    /// 14: a row hides another origin's only if it names it.
    Over,
    /// 15: a new voter is silent for one grant.
    NewVoterSilent,
    /// 16: processes go by a clock that counts the time in which they slept.
    BootClock,
    /// 17: what masks another origin's open row outlives it.
    MaskingKept,
    /// A renewal that was long on its way puts no older view in a grant's place.
    LateRenewal,
    /// A majority is of those who vote, and of those who voted before.
    VotersBefore,
    /// Who could not hold its lease asks for nothing until a minority's grants have run out.
    Quiet,
    /// What was gained stays closed until the gate opens.
    ClosedWhenGained,
    /// Where a view was skipped, every key counts as gained.
    SkippedView,
    /// A key that is being given up is not run.
    PendingClosed,
    /// A lease of an older view is good for what was owned under it, and for nothing else.
    LeaseOfOlderView,
    /// A region that is back is a risk until it was heard of.
    LossUntilHeard,
    /// A sealed region that may hold what is needed of a lost one is asked for it.
    SealedAsked,
    /// The window of a loss is waited for.
    Window,
}

#[cfg(any(test, feature = "plant"))]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Plant>> = const { std::cell::Cell::new(None) };
}

/// Whether this check is taken out, on this thread.
#[cfg(any(test, feature = "plant"))]
pub fn removed(check: Plant) -> bool {
    PLANTED.get() == Some(check)
}

/// No check is ever taken out.
#[cfg(not(any(test, feature = "plant")))]
pub const fn removed(_check: Plant) -> bool {
    false
}

/// Does something with one check taken out, on this thread; the check is back afterwards, also after a panic.
#[cfg(any(test, feature = "plant"))]
pub fn planted<T>(check: Plant, act: impl FnOnce() -> T) -> T {
    struct Back(Option<Plant>);
    impl Drop for Back {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }
    let _back = Back(PLANTED.replace(Some(check)));
    act()
}

#[cfg(test)]
mod tests;

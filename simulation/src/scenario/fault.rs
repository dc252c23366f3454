//! `[[fault]]` and `[swarm]`: faults by a timeline, or drawn from the seed.
//!
//! Each kind has one name everywhere: in scenario files, in the story and in results.

use std::time::Duration;

use onceway::config::reader::{self, Section};
use onceway::protocol::named;
use onceway::protocol::region::RegionName;
use toml::de::DeValue;

use super::known::{Known, span};
use crate::peers::Letter;
use crate::process::Point;

/// The default delay of late letters and confirmations.
const LATER_MS: u64 = 500;
/// The time from a sender's giving up to the effect of its late statement, unless it is said.
pub const GHOST_MS: u64 = 2_000;
/// The default time from a failure to its effect.
const GAVE_UP_MS: u64 = 1_000;
/// The time of a slow connection, unless it is said: shorter than an attempt may take.
pub const CONNECTS_MS: u64 = 2_000;
/// The default lag of a status address.
pub const LAGS_MS: u64 = 2_000;
/// By how much a database's clock is set at the most, in seconds, and unless it is said.
pub const CLOCK_MOST: u64 = 10 * 365 * 86_400;
const CLOCK_USUAL_MS: u64 = 365 * 86_400_000;
/// The default of a lowered retention.
pub const LOWERED_MS: u64 = 300_000;
/// Duration of raised leases, unless the fault says something else.
const LEASE_MS: u64 = 9_000;
/// For how long they are remembered at most where that is raised.
pub const RAISED: Duration = Duration::from_secs(400 * 86_400);
/// The time of the first copy of a store's records, unless it is said.
const COPIED_MS: u64 = 3_000;

/// Kinds of faults, each with its name, the parts that it takes hold of, and a description.
macro_rules! faults {
    ($about_all:literal $of:ident $($kind:ident $name:literal $parts:literal $about:literal)*) => {
        named! { $about_all $of $($kind $name $about)* }

        impl $of {
            /// The parts that it takes hold of, as `play::organs` reads them.
            pub fn parts(self) -> &'static str {
                match self { $(Self::$kind => $parts),* }
            }
        }
    };
}

faults! {
    "What happens to one region."
    OfRegion
    RegionLoss "region-loss" "links process store" "Gateway, Postgres and links are gone, and come back with the data they had."
    MachineRestarts "machine-restarts" "process store" "Gateway and Postgres are gone for a moment, and start again with the data they had."
    DiskLost "disk-lost" "links process store" "Gateway and Postgres are gone with all data that had not left; an operator has an empty store put in their place, whose first copies take `copied`."
    StoreRestored "store-restored" "links process store" "Postgres is gone, and comes back as a copy taken when the fault began and the writes since then forgotten."
    GatewayKilled "gateway-killed" "process" "The gateway process is killed, Postgres lives."
    GatewayDiesAfter "gateway-dies-after" "process" "The gateway process dies right after a statement of its upkeep (`points`) took effect, and starts again a second later; each time while it lasts."
    LeaseRaised "lease-raised" "every-process" "All gateways, this one first and one after another, are restarted with leases that run for `by`, and afterwards with those of before."
    RetentionLowered "retention-lowered" "process routes" "The gateway is restarted with routes that remember keys for `by` only, and afterwards with those of before."
    RetentionReloaded "retention-reloaded" "every-routes" "All gateways, this one first and one after another, read routes again that remember keys for `by`, and afterwards those of before."
    EscrowReloaded "escrow-reloaded" "every-routes" "All gateways, this one first and one after another, read routes again of which one under escrow is not and one without is, and afterwards those of before."
    HoldsReloaded "holds-reloaded" "every-routes" "All gateways, this one first and one after another, read routes again whose holds and settle times are twice as long, and afterwards those of before."
    RoutesRenamed "routes-renamed" "routes" "The gateway reads routes again, of which one under escrow and one without have changed names, and afterwards those of before."
    GatewayPaused "gateway-paused" "process" "The gateway process stops in the middle of whatever it does, its clock runs on, and then it goes on."
    ConfirmationsLate "confirmations-late" "confirmations" "Claims are written at once, and whoever made one hears of it `by` later: a handler that sleeps between its claim and its send."
    GatewayUpgraded "gateway-upgraded" "process" "Another gateway process starts, and the one before is stopped once the new one answers."
    StoreDown "store-down" "store" "Postgres is killed and stays away, the gateway lives."
    StoreStalls "store-stalls" "store" "Statements are not executed, and time out."
    StoreLosesReplies "store-loses-replies" "store" "Statements are executed, and their replies are lost: commits that nobody was told of."
    StoreLate "store-late" "store" "Every third statement that writes takes effect `by` after its sender gave up, unless Postgres ended meanwhile."
    StoreSlow "store-slow" "store" "Each statement takes 1.2 s."
    StoreRestarts "store-restarts" "store" "Postgres is killed and starts at once: what it wrote is there, what it had just applied comes again."
    StorePromoted "store-promoted" "store" "Postgres is killed, and a standby is promoted that lacks what was written while the fault lasts, from a heartbeat on."
    StoreClockAhead "store-clock-ahead" "store" "The database's wall clock steps ahead by 5 s, and back afterwards."
    StoreClockBack "store-clock-back" "store" "The database's wall clock steps back by 5 s, and ahead afterwards."
    StoreClockFarAhead "store-clock-far-ahead" "store" "The database's wall clock is set ahead by `by`, seconds to years, and back afterwards."
    StoreClockFarBack "store-clock-far-back" "store" "The database's wall clock is set back by `by`, seconds to years, and right again afterwards."
    ClockFast "clock-fast" "process" "The gateway's clocks run fast, by the allowed drift."
    ClockSlow "clock-slow" "process" "The gateway's clocks run slow, by the allowed drift."
    Isolated "isolated" "links" "All links of a region are cut, while clients still reach it."
    BigTransaction "big-transaction" "rows" "All others are busy with a large transaction of the region: its rows wait there, and then come all at once."
    UpstreamRefuses "upstream-refuses" "upstream" "The protected service refuses connections."
    UpstreamSlow "upstream-slow" "upstream" "The protected service takes 2.5 s longer."
    UpstreamEffectThenDrop "upstream-effect-then-drop" "upstream" "The protected service performs the effect, and then breaks the connection."
    UpstreamDropsBefore "upstream-drops-before" "upstream" "The protected service breaks the connection before it does anything."
    UpstreamEffectThenFail "upstream-effect-then-fail" "upstream" "The protected service performs the effect, and then answers `status`."
    UpstreamFailThenEffect "upstream-fail-then-effect" "upstream" "The protected service answers `status`, with Retry-After if it `says_when`, and performs the effect `by` later, before the attempt must be over; until then its status address says that it did not happen. After a 503 with Retry-After it does nothing."
    UpstreamConnectsSlowly "upstream-connects-slowly" "connections" "A connection to the protected service takes `by`, so that the right to send may end meanwhile."
    UpstreamBusy "upstream-busy" "upstream" "The protected service answers 503 with Retry-After."
    UpstreamHangs "upstream-hangs" "upstream" "The protected service takes requests, and neither does nor says anything."
    UpstreamHangsInBody "upstream-hangs-in-body" "upstream" "The protected service performs the effect, and never ends its answer."
    ProbesSilent "probes-silent" "probes" "The protected service's status address does not answer."
    ProbesCannotSay "probes-cannot-say" "probes" "The protected service's status address cannot tell what happened."
    ProbesLag "probes-lag" "probes" "The protected service's status address knows of an effect `by` later, and before the attempt must be over; until then it says that it did not happen."
    ClientClocksFast "client-clocks-fast" "clients" "The clocks of clients that ask there run ten times as fast: they stop waiting, come again and give up too soon, all that a gateway can see of a client's clock."
    ClientClocksSlow "client-clocks-slow" "clients" "The clocks of clients that ask there run at a tenth of their pace: they wait and pause ten times as long."
    Drain "drain" "operator" "An operator drains the region, and resumes it afterwards."
    WitnessPutBack "witness-put-back" "witnesses" "The files of all witnesses are put back to what they were when the fault began, whichever region is named."
    RingChange "ring-change" "operator" "An operator gives the region twice its weight, and takes that back afterwards."
}

faults! {
    "What happens to what goes from one region to another, or both ways between them."
    OfLink
    LinkCut "link-cut" "link" "One link is cut both ways, while others see both ends."
    OneWayCut "one-way-cut" "link" "What the one sends to the other is lost, but not what it is sent."
    LinkRefuses "link-refuses" "link" "Connections from the one to the other are refused."
    LinkLosesRequests "link-loses-requests" "link" "Requests are lost on their way, and the connection breaks."
    LinkLosesReplies "link-loses-replies" "link" "Replies are lost on their way, and the connection breaks."
    LinkSlow "link-slow" "link" "One way takes a second longer, both ways."
    LinkFlaps "link-flaps" "link" "The link is cut and mended every 1.5 s."
    ReplicationStalls "replication-stalls" "link" "Rows of the one do not reach the other, while gateways talk."
    SlotLost "slot-lost" "slot" "The one keeps nothing any more of what the other has to copy; an operator has it copied anew afterwards, which takes `copied`, while heartbeats come."
    LettersLost "letters-lost" "letters" "Single kinds of letters (`letters`) from the one to the other are lost, while all else arrives."
    LettersLate "letters-late" "letters" "Single kinds of letters (`letters`) from the one to the other arrive `by` later, after those that were sent behind them."
    ReplicationSlow "replication-slow" "pace" "Rows of the one take 4 s longer to the other."
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Region(OfRegion),
    Link(OfLink),
}

impl Kind {
    pub fn all() -> Vec<Self> {
        let regions = OfRegion::ALL.iter().copied().map(Self::Region);
        regions.chain(OfLink::ALL.iter().copied().map(Self::Link)).collect()
    }

    /// True if a swarm that names no kinds draws it. An additional kind would change the draws of
    /// every seed, and these kinds need details.
    pub fn is_drawn(self) -> bool {
        !matches!(
            self,
            Self::Region(
                OfRegion::ConfirmationsLate
                    | OfRegion::LeaseRaised
                    | OfRegion::WitnessPutBack
                    | OfRegion::StorePromoted
            ) | Self::Link(OfLink::LettersLost | OfLink::LettersLate)
        )
    }

    /// True if it ends with first copies of records, which take a time of their own.
    pub fn copies(self) -> bool {
        matches!(
            self,
            Self::Region(OfRegion::DiskLost | OfRegion::StoreRestored) | Self::Link(OfLink::SlotLost)
        )
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Region(kind) => kind.name(),
            Self::Link(kind) => kind.name(),
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::Region(kind) => kind.about(),
            Self::Link(kind) => kind.about(),
        }
    }
}

/// A fault and where it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happens {
    Region(OfRegion, RegionName),
    /// On the link from the first region to the second, or between both.
    Link(OfLink, RegionName, RegionName),
    /// At a place drawn from the seed.
    Anywhere(Kind),
}

/// Details of single kinds of faults, in addition to place and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct How {
    pub letters: Vec<Letter>,
    /// The statements after which the process dies.
    pub points: Vec<Point>,
    /// The delay or step.
    pub by: Duration,
    /// The time of first copies of records.
    pub copied: Duration,
    /// The status of a failure; `None`: the kind's own.
    pub status: Option<u16>,
    /// True if a failure asks for a pause.
    pub says_when: bool,
}

impl Default for How {
    fn default() -> Self {
        Self {
            letters: Letter::ALL.to_vec(),
            points: Point::ALL.to_vec(),
            by: Duration::from_millis(LATER_MS),
            copied: Duration::from_millis(COPIED_MS),
            status: None,
            says_when: false,
        }
    }
}

/// One fault of the timeline.
#[derive(Clone, Debug)]
pub struct Fault {
    pub what: Happens,
    pub how: How,
    /// The beginning, after clients began to ask.
    pub at: Duration,
    pub lasts: Duration,
}

/// Faults at random. Each seed switches whole kinds off, so that rare combinations happen alone.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The mean time from one fault to the next.
    pub every: Duration,
    /// The mean length of a fault.
    pub lasts: Duration,
    pub kinds: Vec<Kind>,
    /// The percentage of seeds in which each kind is off.
    pub off: u32,
    /// The greatest number of faults at the same time.
    pub at_once: usize,
}

pub(super) fn read(top: &Section<'_>, known: &Known<'_>, length: Duration) -> (Vec<Fault>, Option<Swarm>) {
    let faults =
        top.tables("fault").into_iter().filter_map(|section| fault(section, known, length)).collect();
    (faults, top.table("swarm").map(swarm))
}

const OF_ONE: &str = "it happens to one region: write region = \"NAME\", or region = \"any\"";
const OF_TWO: &str =
    "it happens between two regions: write regions = [\"FROM\", \"TO\"], or regions = \"any\"";

fn fault(mut section: Section<'_>, known: &Known<'_>, length: Duration) -> Option<Fault> {
    let kind = section.required("kind", "say what goes wrong, such as kind = \"region-loss\"", kind);
    if let Some(kind) = kind {
        section.rename(format!("fault {:?}", kind.name()));
    }
    let at = section.required("at", "say when, such as at = \"20s\"", |value| {
        reader::time(value, Duration::ZERO, Duration::from_secs(86_400))
    });
    if at.is_some_and(|at| at >= length) {
        section.fail_at("at", "at is not before the end: everything is mended once length is over");
    }
    let lasts = span(&section, "lasts", 0, 86_400, 20_000);
    let region = section.optional("region", |value| anywhere_or(value, |value| known.region(value)));
    let regions = section.optional("regions", |value| anywhere_or(value, |value| two(value, known)));
    let what = match (kind, region, regions) {
        (Some(kind @ Kind::Region(_)), Some(None), None) | (Some(kind @ Kind::Link(_)), None, Some(None)) => {
            Some(Happens::Anywhere(kind))
        }
        (Some(Kind::Region(kind)), Some(Some(region)), None) => Some(Happens::Region(kind, region)),
        (Some(Kind::Link(kind)), None, Some(Some((from, to)))) => Some(Happens::Link(kind, from, to)),
        (kind, ..) => {
            match kind {
                Some(Kind::Region(_)) => section.fail(OF_ONE),
                Some(Kind::Link(_)) => section.fail(OF_TWO),
                None => {}
            }
            None
        }
    };
    let how = read_how(&section, kind);
    section.finish();
    Some(Fault { what: what?, how, at: at?, lasts })
}

fn read_how(section: &Section<'_>, kind: Option<Kind>) -> How {
    let mut how = How::default();
    let Some(kind) = kind else { return how };
    // The longest time in seconds, and the usual one in milliseconds.
    let by = match kind {
        Kind::Link(OfLink::LettersLate) | Kind::Region(OfRegion::ConfirmationsLate) => {
            Some((3_600, LATER_MS))
        }
        Kind::Region(OfRegion::StoreClockFarAhead | OfRegion::StoreClockFarBack) => {
            Some((CLOCK_MOST, CLOCK_USUAL_MS))
        }
        Kind::Region(OfRegion::LeaseRaised) => Some((600, LEASE_MS)),
        Kind::Region(OfRegion::RetentionLowered) => Some((86_400, LOWERED_MS)),
        Kind::Region(OfRegion::StoreLate) => Some((3_600, GHOST_MS)),
        Kind::Region(OfRegion::UpstreamFailThenEffect) => Some((3_600, GAVE_UP_MS)),
        Kind::Region(OfRegion::UpstreamConnectsSlowly) => Some((3_600, CONNECTS_MS)),
        Kind::Region(OfRegion::ProbesLag) => Some((3_600, LAGS_MS)),
        Kind::Region(OfRegion::RetentionReloaded) => Some((RAISED.as_secs(), LOWERED_MS)),
        Kind::Region(_) | Kind::Link(_) => None,
    };
    if let Some((most, usual)) = by {
        how.by = span(section, "by", 1, most, usual);
    }
    match kind {
        Kind::Link(OfLink::LettersLost | OfLink::LettersLate) => {
            how.letters = words(section, "letters", &Letter::ALL, Letter::name).unwrap_or(how.letters);
        }
        Kind::Region(OfRegion::GatewayDiesAfter) => {
            how.points = words(section, "points", &Point::ALL, Point::name).unwrap_or(how.points);
        }
        Kind::Region(OfRegion::UpstreamEffectThenFail) => how.status = Some(status(section, 500)),
        Kind::Region(OfRegion::UpstreamFailThenEffect) => {
            how.status = Some(status(section, 504));
            how.says_when = section.optional("says_when", reader::flag).unwrap_or(false);
        }
        Kind::Region(_) | Kind::Link(_) => {}
    }
    if kind.copies() {
        how.copied = span(section, "copied", 0, 86_400, COPIED_MS);
    }
    how
}

fn status(section: &Section<'_>, usual: u16) -> u16 {
    section.optional("status", |value| reader::number(value, 400, 599)).unwrap_or(usual)
}

/// Reads a list of kinds by their names.
fn words<T: Copy>(
    section: &Section<'_>,
    key: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Option<Vec<T>> {
    let names: Vec<(&str, T)> = all.iter().map(|one| (name(*one), *one)).collect();
    section.optional(key, |value| reader::list(value, |value| reader::word(value, &names)))
}

/// Reads a place; `None` for "any".
fn anywhere_or<T>(
    value: &DeValue<'_>,
    read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value.as_str() == Some("any") { Ok(None) } else { read(value).map(Some) }
}

/// Two different regions, if these are.
pub(super) fn two_of(names: Vec<RegionName>) -> Option<(RegionName, RegionName)> {
    let [one, other] = <[RegionName; 2]>::try_from(names).ok()?;
    (one != other).then_some((one, other))
}

fn two(value: &DeValue<'_>, known: &Known<'_>) -> Result<(RegionName, RegionName), String> {
    let names = reader::list(value, |value| known.region(value))?;
    two_of(names).ok_or_else(|| "must be two different regions, or \"any\"".to_owned())
}

fn kind(value: &DeValue<'_>) -> Result<Kind, String> {
    let words: Vec<(&str, Kind)> = Kind::all().into_iter().map(|kind| (kind.name(), kind)).collect();
    reader::word(value, &words)
}

fn swarm(section: Section<'_>) -> Swarm {
    let kinds = section
        .optional("kinds", |value| reader::list(value, kind))
        .unwrap_or_else(|| Kind::all().into_iter().filter(|kind| kind.is_drawn()).collect());
    if kinds.is_empty() {
        let text = "no kind is named: leave kinds out for all of them, or the whole table for none";
        section.fail_at("kinds", text);
    }
    let off = section.optional("off", |value| reader::number(value, 0, 99)).unwrap_or(50);
    let at_once = section.optional("at_once", |value| reader::number(value, 1, 100)).unwrap_or(3);
    let swarm = Swarm {
        every: span(&section, "every", 100, 3_600, 4_000),
        lasts: span(&section, "lasts", 10, 3_600, 6_000),
        kinds,
        off,
        at_once,
    };
    section.finish();
    swarm
}

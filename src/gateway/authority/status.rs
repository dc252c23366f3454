//! Authority for people: shares of the ring, standings with their epochs, and open hindrances.
//!
//! Field names are a contract: add, never rename. No secret is here.

use std::time::Duration;

use serde::Serialize;

use super::failover::Mode;
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::readiness::{PeerStatus, Readiness};
use crate::ports::Ports;
use crate::protocol::authority::GateState;
use crate::protocol::key::KeyId;
use crate::protocol::opening::Hindrance;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::ring::ARCS;
use crate::protocol::snapshot::{Here, Snapshot, StoreHealth};
use crate::protocol::view::{Member, Standing};

/// The register, the lease and the gate as this gateway knows them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuthorityStatus {
    /// The epoch; 0 before the register is founded.
    pub epoch: u64,
    /// True if the register is founded.
    pub founded: bool,
    /// `automatic` or `manual`.
    pub mode: &'static str,
    /// The region's lease at this gateway.
    pub lease: LeaseStatus,
    /// All regions.
    pub regions: Vec<RegionStatus>,
    /// Hindrances that keep gained keys from starting.
    pub opening: Vec<HindranceStatus>,
    /// The epoch of a change that this region has given keys up for.
    pub pending: Option<u64>,
    /// Regions and witnesses that vote.
    pub voters: Vec<String>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeaseStatus {
    /// True if it is held.
    pub held: bool,
    /// Milliseconds left.
    pub left_ms: u64,
}

/// One region, as the view has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RegionStatus {
    /// The region's name.
    pub name: String,
    /// `serving`, `sealed`, `drained` or `lost`.
    pub standing: &'static str,
    /// The epoch since which it has this standing, as far as known here.
    pub since_epoch: u64,
    /// Milliseconds since that epoch came here; absent while the store does not answer.
    pub since_ms: Option<u64>,
    /// Its state as known here: `runs keys`, `runs no keys`, `silent` or `not asked`.
    pub state: &'static str,
    /// Reason for a state other than `runs keys`, if it is known.
    pub because: Option<String>,
    /// The next thing to do, or that nothing has to be done. Absent while it runs keys.
    pub advice: Option<String>,
    /// The share of the arcs that it owns, 0 to 1.
    pub share: f64,
    /// Its mark.
    pub mark: u64,
    /// Generation of its store.
    pub generation: u32,
    /// True if the ring has it. A region that left stays listed, as its rows live on.
    pub in_ring: bool,
    /// True if the region says that its upstream fails its checks. If it is sealed for that, it
    /// returns by itself once its upstream is well.
    pub upstream_failing: bool,
}

/// One hindrance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HindranceStatus {
    /// Kind: `not-covered`, `window`, `beyond`, `unmeasured`, `gap`, `forgotten`, `not-told`,
    /// `left-ring`, `import`, `escrow`.
    pub what: &'static str,
    /// The region that it is about.
    pub region: String,
    /// Explanation for people.
    pub text: String,
    /// Milliseconds left, if known.
    pub left_ms: Option<u64>,
    /// True if only an operator can lift it.
    pub needs_operator: bool,
}

impl<P: Ports> Gateway<P> {
    /// The epoch that this gateway runs keys under; `None` without a lease or an open store.
    pub fn held_under(&self) -> Option<u64> {
        let known = self.snapshot();
        let StoreHealth::Open(gate) = &*known.store else { return None };
        let state = gate.state.as_ref().filter(|_| known.holds_lease(self.now()));
        state.map(|state| state.view.epoch())
    }

    /// True if a request for this key would be claimed now, apart from proofs of absence.
    pub fn may_start(&self, id: &KeyId) -> bool {
        matches!(self.here(id), Here::Run(_))
    }

    /// The gate's state that this gateway claims under.
    pub fn gate(&self) -> Option<GateState> {
        self.gate_state().map(|(_, state)| state)
    }

    /// The register, the lease and the gate as this gateway knows them.
    pub fn authority_status(&self) -> AuthorityStatus {
        let known = self.snapshot();
        let (view, left) = (&known.view, known.lease_left(self.now()));
        let pending = known.gate().and_then(|(_, state)| Some(state.pending.as_ref()?.target.epoch()));
        AuthorityStatus {
            epoch: view.epoch(),
            founded: view.epoch() > 0,
            mode: match self.settings.failover.mode {
                Mode::Automatic => "automatic",
                Mode::Manual => "manual",
            },
            lease: LeaseStatus { held: !left.is_zero(), left_ms: millis(left) },
            regions: regions(&known, &|name| self.says_failing(name)),
            opening: known.hindrances.iter().map(hindrance).collect(),
            pending,
            voters: view.voters().keys().map(ToString::to_string).collect(),
        }
    }
}

impl RegionStatus {
    /// Adds its state now, the reason, and what to do.
    pub fn describe(&mut self, own: Option<&Readiness>, peer: Option<&PeerStatus>, mode: &str) {
        (self.state, self.because) = match (own, peer) {
            (Some(readiness), _) if readiness.serves => ("runs keys", None),
            (Some(readiness), _) => ("runs no keys", Some(readiness.reasons.join("; "))),
            (None, Some(peer)) if !peer.up => ("silent", Some(silence(peer))),
            (None, Some(peer)) if peer.serving => ("runs keys", None),
            (None, Some(_)) => ("runs no keys", None),
            (None, None) => ("not asked", None),
        };
        self.advice = advice(self, mode, own.is_some());
    }
}

fn silence(peer: &PeerStatus) -> String {
    let heard = match peer.heard_ms_ago {
        Some(ago) => format!("it was last heard {:.1} s ago", ago as f64 / 1_000.0),
        None => "it was never heard".to_owned(),
    };
    peer.trouble.as_ref().map_or(heard.clone(), |trouble| format!("{heard}: {trouble}"))
}

/// The next thing to do about a region that does not run keys.
fn advice(region: &RegionStatus, mode: &str, own: bool) -> Option<String> {
    let name = &region.name;
    let text = match (region.standing, region.state) {
        _ if !region.in_ring => return None,
        ("serving", "runs keys") => return None,
        ("drained", _) => format!("it stays out until `onceway region resume {name}`"),
        ("lost", "silent") => format!(
            "start it: it comes home by itself once it has been well for `stable_for`; if its store is gone: `onceway region rebuild {name}`"
        ),
        ("lost", _) => "nothing: it comes home by itself once it has been well for `stable_for`".to_owned(),
        ("sealed", _) if region.upstream_failing => "mend its upstream: it comes back by itself".to_owned(),
        ("sealed", "silent") | ("serving", "silent") if mode == "manual" => format!(
            "start it, or move its keys once it is surely stopped: `onceway takeover {name} --reason ...`"
        ),
        ("sealed", "silent") => "start it: it comes back by itself".to_owned(),
        ("serving", "silent") => {
            "nothing: its keys move once its lease is over and a majority of the voters agrees".to_owned()
        }
        ("sealed", _) => "nothing: it takes its keys home once it has what was written meanwhile".to_owned(),
        (_, "runs no keys") if !own => {
            "ask its own gateway for the reason: `onceway status --admin` there".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

fn regions(known: &Snapshot, failing: &dyn Fn(&RegionName) -> bool) -> Vec<RegionStatus> {
    let view = &known.view;
    let shares = view.shares();
    let of = |(name, member): (&RegionName, &Member)| {
        let before = known.views.values().rev().filter(|known| known.epoch() <= view.epoch());
        let same = before.take_while(|known| known.standing(name) == Some(member.standing));
        RegionStatus {
            name: name.to_string(),
            standing: match member.standing {
                Standing::Serving => "serving",
                Standing::Sealed { drained: true } => "drained",
                Standing::Sealed { drained: false } => "sealed",
                Standing::Lost { .. } => "lost",
            },
            since_epoch: same.last().map_or(view.epoch(), |known| known.epoch()),
            state: "not asked",
            share: f64::from(shares.get(name).copied().unwrap_or(0)) / f64::from(ARCS),
            mark: member.mark,
            generation: member.generation,
            upstream_failing: failing(name),
            in_ring: view.ring().weight(name).is_some(),
            ..RegionStatus::default()
        }
    };
    view.members().iter().map(of).collect()
}

fn hindrance(missing: &Hindrance) -> HindranceStatus {
    let accept =
        |region: &RegionName| format!("accept the risk with `onceway takeover {region} --accept-risk`");
    let (what, region, text) = match missing {
        Hindrance::NotCovered { origin, mark, applied } => {
            let text = format!("rows of {origin} have arrived up to heartbeat {applied}, {mark} is needed");
            ("not-covered", &origin.region, text)
        }
        Hindrance::Window { origin: Origin { region, .. }, left: _ } => {
            ("window", region, format!("the window after the loss of {region} runs"))
        }
        Hindrance::Beyond { origin: Origin { region, .. }, window } => {
            let (window, accept) = (window.as_secs(), accept(region));
            let text = format!("the window after the loss of {region} would be {window} s: {accept}");
            ("beyond", region, text)
        }
        Hindrance::Unmeasured(Origin { region, .. }) => {
            let text = format!("no lag behind {region} was ever measured here: {}", accept(region));
            ("unmeasured", region, text)
        }
        Hindrance::Gap(Origin { region, .. }) => {
            let text = format!("rows that {region} had sealed are missing everywhere: {}", accept(region));
            ("gap", region, text)
        }
        Hindrance::Forgotten { origin, mark, applied } => {
            let text = format!(
                "nobody who is left has rows of {origin} beyond heartbeat {applied}, and there were some up to {mark}: {}",
                accept(&origin.region)
            );
            ("forgotten", &origin.region, text)
        }
        Hindrance::NotTold { origin, by } => {
            ("not-told", by, format!("{by} has not said yet what it has of {origin}"))
        }
        Hindrance::LeftRing { origin, by, lost } => {
            let mut text = format!(
                "{by} left the ring and may have rows of {origin} that no other region has: put it back into the ring"
            );
            if *lost {
                text += &format!(" or, if it is gone, {}", accept(&origin.region));
            }
            ("left-ring", by, text)
        }
        Hindrance::Import { origin, from, upto } => {
            ("import", &origin.region, format!("rows of {origin} up to heartbeat {upto} come from {from}"))
        }
        Hindrance::Escrow(Origin { region, .. }) => {
            ("escrow", region, format!("claims of {region} that were lodged here become records"))
        }
    };
    let (left_ms, needs_operator) = (missing.left().map(millis), missing.needs_operator());
    HindranceStatus { what, region: region.to_string(), text, left_ms, needs_operator }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(standing: &'static str) -> RegionStatus {
        RegionStatus { name: "eu-west".to_owned(), standing, in_ring: true, ..RegionStatus::default() }
    }

    fn peer(up: bool, serving: bool) -> PeerStatus {
        PeerStatus { up, serving, heard_ms_ago: Some(14_000), ..PeerStatus::default() }
    }

    #[test]
    fn an_idle_region_says_why_and_what_to_do() {
        let table = [
            ("serving", (true, true), "runs keys", None),
            ("serving", (true, false), "runs no keys", Some("`onceway status --admin` there")),
            ("serving", (false, false), "silent", Some("nothing: its keys move")),
            ("lost", (false, false), "silent", Some("start it")),
            ("lost", (true, false), "runs no keys", Some("nothing: it comes home")),
            ("drained", (true, false), "runs no keys", Some("`onceway region resume eu-west`")),
            ("sealed", (true, false), "runs no keys", Some("nothing: it takes its keys home")),
        ];
        for (standing, (up, serving), state, advised) in table {
            let mut described = region(standing);
            described.describe(None, Some(&peer(up, serving)), "automatic");
            assert_eq!(described.state, state, "{standing}");
            let advice = described.advice.as_deref();
            assert_eq!(advice.is_some(), advised.is_some(), "{standing} {state}: {advice:?}");
            let (advice, advised) = (advice.unwrap_or_default(), advised.unwrap_or_default());
            assert!(advice.contains(advised), "{standing}: {advice:?}");
        }
        let mut manual = region("serving");
        manual.describe(None, Some(&peer(false, false)), "manual");
        assert!(manual.advice.unwrap().contains("onceway takeover eu-west"));
        assert_eq!(manual.because.as_deref(), Some("it was last heard 14.0 s ago"));
    }

    /// A lone region waits for its lease: its standing is "serving", and it runs no keys.
    #[test]
    fn the_own_region_gives_its_own_reasons() {
        let reasons = vec!["the region's lease is not held".to_owned(), "so and so".to_owned()];
        let readiness = Readiness { ready: false, serves: false, forwards_to: Vec::new(), reasons };
        let mut own = region("serving");
        own.describe(Some(&readiness), None, "automatic");
        assert_eq!((own.state, own.advice), ("runs no keys", None));
        assert_eq!(own.because.as_deref(), Some("the region's lease is not held; so and so"));
    }
}

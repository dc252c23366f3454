//! What somebody should look at now: the first lines of the console, gathered from everything below them.
//!
//! Neighbours: [`super::now`] shows it, `gateway::status` says it. It adds no judgement of its own: each line is something that a gateway says is
//! wrong, waits, or is not as at home.

use crate::gateway::authority::status::AuthorityStatus;
use crate::gateway::operator::Doubts;
use crate::gateway::status::Status;

use super::frame::span;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Whether somebody has to act, or it may pass by itself.
    pub(super) act: bool,
    /// What it is.
    pub(super) text: String,
    /// Where more of it stands: the id of a section.
    pub(super) at: &'static str,
}

/// Everything there is, what has to be acted on first.
pub(super) fn lines(status: &Status, doubts: Option<&Doubts>) -> Vec<Line> {
    let mut all = Vec::new();
    let mut say = |act, text: String, at| all.push(Line { act, text, at });
    for reason in &status.readiness.reasons {
        say(!status.readiness.ready, reason.clone(), "regions");
    }
    for problem in &status.config.problems {
        say(true, format!("the files are wrong, the old ones run: {problem}"), "summary");
    }
    for key in &status.config.restart {
        say(true, format!("needs a restart: {key}"), "summary");
    }
    if let Some(left) = status.store.clock_suspect_ms {
        say(
            false,
            format!("the database's clock is suspect for {}: no hold counts as over", span(left)),
            "leases",
        );
    }
    if let Some(upstream) = &status.upstream
        && let Some(failing) = upstream.failing_ms
    {
        let then = match (upstream.keeps_out, upstream.sick) {
            (true, _) => "this region stays out until it is well",
            (false, true) => "long enough to drain this region, if enough others are well",
            (false, false) => "not for long enough to drain this region",
        };
        say(true, format!("the upstream fails its checks for {}: {then}", span(failing)), "regions");
    }
    for (name, peer) in status.peers.iter().filter(|(_, peer)| peer.up) {
        if let Some(trouble) = &peer.trouble {
            say(true, format!("{name}: {trouble}"), "regions");
        }
    }
    // Of a region that is silent nothing else is expected.
    let answers = |name: &str| status.peers.get(name).is_some_and(|peer| peer.up);
    let copies = status.subscriptions.iter().flatten();
    for copy in copies.filter(|copy| !(copy.ready && copy.streaming) && answers(&copy.from)) {
        say(false, format!("rows of {} do not stream in", copy.from), "regions");
    }
    authority(&status.authority, &mut say);
    if let Some(doubts) = doubts.filter(|doubts| !doubts.doubts.is_empty()) {
        let count = doubts.doubts.len();
        let more = if doubts.more { " at least" } else { "" };
        let text = if count == 1 {
            "1 key is in doubt".to_owned()
        } else {
            format!("{count} keys{more} are in doubt")
        };
        say(true, text, "doubts");
    }
    all.sort_by_key(|line| !line.act);
    all
}

fn authority(authority: &AuthorityStatus, say: &mut impl FnMut(bool, String, &'static str)) {
    for region in authority.regions.iter().filter(|region| region.in_ring) {
        let name = &region.name;
        match region.standing {
            "lost" => say(true, format!("{name} is lost: its keys run elsewhere"), "ring"),
            "drained" => say(false, format!("{name} is drained: out until `onceway region resume`"), "ring"),
            "sealed" => say(false, format!("{name} is sealed: complete, comes back by itself"), "ring"),
            _ if region.upstream_failing => {
                say(true, format!("the upstream of {name} fails its checks"), "regions")
            }
            _ => {}
        }
    }
    for missing in &authority.opening {
        say(missing.needs_operator, format!("gained keys wait: {}", missing.text), "windows");
    }
    if let Some(epoch) = authority.pending {
        say(false, format!("keys are given up for epoch {epoch}, which is not agreed yet"), "leases");
    }
}

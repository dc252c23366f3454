//! The first lines of the console: matters for a person's attention, gathered from all sections.
//!
//! Each repeats a report of a gateway: a thing is wrong, waits, or is away from home. Some counts
//! are read from its page of metrics. The bounds are those of deploy/prometheus/alerts.yml.

use crate::gateway::authority::status::AuthorityStatus;
use crate::gateway::operator::audit::FindingsPage;
use crate::gateway::operator::doubt_lists::AllDoubts;
use crate::gateway::telemetry::status::Status;
use crate::ports::observe;

use super::frame::span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// True if a person has to act. Otherwise it may pass by itself.
    pub(super) act: bool,
    pub(super) text: String,
    /// Id of the section with more of it.
    pub(super) at: &'static str,
}

/// Time before a certificate's end at which the line appears, in milliseconds: as in
/// OncewayCertificateExpires.
const EXPIRES_WITHIN: i64 = 14 * 86_400_000;

/// Counts of the region that are in no status.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    dead: usize,
    slots: Vec<String>,
    /// Use and expiry date of each certificate, in milliseconds since 1970.
    certificates: Vec<(String, i64)>,
}

impl Counted {
    pub(super) fn of(page: &str) -> Self {
        let series = |name: &'static str| {
            page.lines().filter_map(move |line| {
                let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
                let label = match labels {
                    "" => "",
                    _ => labels.strip_prefix('{')?.split_once("=\"")?.1.strip_suffix("\"}")?,
                };
                Some((label.to_owned(), value.parse::<f64>().ok()?))
            })
        };
        let dead = series(observe::JOBS_DEAD).map(|(_, dead)| dead as usize).sum();
        let lost = series(observe::SLOT_LOST).filter(|(_, lost)| *lost > 0.0);
        let ends = series(observe::CERTIFICATE_EXPIRES).map(|(of, at)| (of, (at * 1_000.0) as i64));
        Self { dead, slots: lost.map(|(slot, _)| slot).collect(), certificates: ends.collect() }
    }
}

pub(super) struct Beside<'a> {
    pub(super) doubts: Option<&'a AllDoubts>,
    /// One page of the journal's recent findings.
    pub(super) findings: Option<&'a FindingsPage>,
    pub(super) counted: &'a Counted,
}

/// Makes all lines. Those that need an act come first.
pub(super) fn lines(status: &Status, beside: &Beside<'_>) -> Vec<Line> {
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
    // A silent region is not expected to stream.
    let answers = |name: &str| status.peers.get(name).is_some_and(|peer| peer.up);
    let copies = status.subscriptions.iter().flatten();
    for copy in copies.filter(|copy| !(copy.ready && copy.streaming) && answers(&copy.from)) {
        say(false, format!("rows of {} do not stream in", copy.from), "regions");
    }
    authority(&status.authority, &mut say);
    waiting(beside, status.at_ms, &mut say);
    all.sort_by_key(|line| !line.act);
    all
}

/// Adds the lines about things that wait for a person, or soon will.
fn waiting(beside: &Beside<'_>, now_ms: i64, say: &mut impl FnMut(bool, String, &'static str)) {
    if let Some(page) = beside.findings {
        let (more, all) = (page.next.is_some(), &page.findings);
        let doubles = all.iter().filter(|finding| finding.entry.kind == "double").count();
        let unexplained = all.iter().filter(|finding| finding.entry.is_unexplained()).count();
        if let Some(keys) = some(unexplained, more, "key") {
            say(true, format!("{keys} ran in two regions, and nothing explains it: a bug"), "audit");
        }
        if let Some(keys) = some(doubles - unexplained, more, "key") {
            say(true, format!("{keys} ran in two regions"), "audit");
        }
        if let Some(answers) = some(all.len() - doubles, more, "answer") {
            say(true, format!("{answers} came too late, to what may have run twice"), "audit");
        }
    }
    let Counted { dead, slots, certificates } = beside.counted;
    if let Some(requests) = some(*dead, false, "accepted request") {
        say(true, format!("{requests} failed for good: `onceway jobs`"), "summary");
    }
    for slot in slots {
        say(true, format!("slot {slot} is lost: its subscriber needs `onceway store reseed`"), "regions");
    }
    for (of, at_ms) in certificates.iter().filter(|(_, at_ms)| at_ms - now_ms < EXPIRES_WITHIN) {
        let left = u64::try_from(at_ms - now_ms).ok().filter(|left| *left > 0);
        let text = match left {
            Some(left) => format!("the {of} certificate expires in {}", span(left)),
            None => format!("the {of} certificate is expired"),
        };
        say(true, text, "summary");
    }
    if let Some(doubts) = beside.doubts
        && let Some(keys) = some(doubts.doubts.len(), doubts.more, "key")
    {
        let is = if doubts.doubts.len() == 1 { "is" } else { "are" };
        say(true, format!("{keys} {is} in doubt"), "doubts");
    }
}

/// Writes a count with its noun. `None` for 0.
fn some(count: usize, more: bool, of: &str) -> Option<String> {
    let (plural, more) = (if count == 1 { "" } else { "s" }, if more { " at least" } else { "" });
    (count > 0).then(|| format!("{count} {of}{plural}{more}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::operator::audit::FindingStatus;
    use crate::gateway::operator::key::JournalEntry;

    const DAY: i64 = 86_400_000;

    fn said(beside: &Beside<'_>, now_ms: i64) -> Vec<(String, &'static str)> {
        let mut said = Vec::new();
        waiting(beside, now_ms, &mut |act, text, at| {
            assert!(act, "{text}");
            said.push((text, at));
        });
        said
    }

    #[test]
    fn the_page_mentions_metrics_that_need_attention() {
        let page = "# HELP onceway_jobs_dead Dead letters.\n# TYPE onceway_jobs_dead gauge\nonceway_jobs_dead 2\n\
                    onceway_jobs_waiting 7\nonceway_slot_lost{slot=\"sub_eu_from_us\"} 1\nonceway_slot_lost{slot=\"other\"} 0\n\
                    onceway_slot_retained_bytes{slot=\"other\"} 9\n\
                    onceway_certificate_expires_timestamp_seconds{of=\"peer\"} 1728000\n\
                    onceway_certificate_expires_timestamp_seconds{of=\"authority\"} 2073600\n\
                    onceway_certificate_expires_timestamp_seconds{of=\"store\"} 864000\n";
        let counted = Counted::of(page);
        let expected = Counted {
            dead: 2,
            slots: vec!["sub_eu_from_us".to_owned()],
            certificates: vec![
                ("peer".to_owned(), 20 * DAY),
                ("authority".to_owned(), 24 * DAY),
                ("store".to_owned(), 10 * DAY),
            ],
        };
        assert_eq!(counted, expected);
        let beside = Beside { doubts: None, findings: None, counted: &counted };
        // Ten days before the first of them ends. Fourteen days and more need no line today.
        let sentences = said(&beside, 10 * DAY);
        let texts: Vec<&str> = sentences.iter().map(|(text, _)| text.as_str()).collect();
        let expected = [
            "2 accepted requests failed for good: `onceway jobs`",
            "slot sub_eu_from_us is lost: its subscriber needs `onceway store reseed`",
            "the peer certificate expires in 10 d 0 h",
            "the store certificate is expired",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_quiet_page_asks_for_no_attention() {
        let quiet = "onceway_jobs_dead 0\nonceway_slot_lost{slot=\"other\"} 0\n\
                     onceway_certificate_expires_timestamp_seconds{of=\"peer\"} 1209600\n";
        let counted = Counted::of(quiet);
        let (findings, doubts) = (FindingsPage::default(), AllDoubts::default());
        let beside = Beside { doubts: Some(&doubts), findings: Some(&findings), counted: &counted };
        assert_eq!(said(&beside, 0), []);
        assert_eq!(said(&beside, 1).len(), 1, "a certificate has less than fourteen days");
    }

    #[test]
    fn journal_findings_are_described_by_their_kind() {
        let finding = |kind: &str| FindingStatus {
            tenant: "acme".to_owned(),
            key: "k".to_owned(),
            entry: JournalEntry {
                kind: if kind == "bug" { "double".to_owned() } else { kind.to_owned() },
                explained: (kind == "bug").then_some("unexplained"),
                ..JournalEntry::default()
            },
        };
        let sentences = |kinds: &[&str], next: Option<&str>| {
            let findings = kinds.iter().map(|kind| finding(kind)).collect();
            let page = FindingsPage { region: "us".to_owned(), findings, next: next.map(str::to_owned) };
            said(&Beside { doubts: None, findings: Some(&page), counted: &Counted::default() }, 0)
        };
        assert_eq!(sentences(&["double"], None), [("1 key ran in two regions".to_owned(), "audit")]);
        let both = [
            ("2 keys at least ran in two regions".to_owned(), "audit"),
            ("1 answer at least came too late, to what may have run twice".to_owned(), "audit"),
        ];
        assert_eq!(sentences(&["double", "late", "double"], Some("9")), both);
        let apart = [
            ("1 key ran in two regions, and nothing explains it: a bug".to_owned(), "audit"),
            ("1 key ran in two regions".to_owned(), "audit"),
        ];
        assert_eq!(sentences(&["double", "bug"], None), apart);
    }
}

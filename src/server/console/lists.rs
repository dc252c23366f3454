//! The console's lists from the store, page by page: keys in doubt, keys that ran at risk, findings
//! of the journal. If the store does not answer, the page says so in place of the list.

use std::sync::Arc;
use std::time::Duration;

use form_urlencoded::byte_serialize;
use maud::{Markup, html};

use super::frame::{NOTHING, Row, ago, countdown, mark, or_nothing, section, table};
use super::session::Visit;
use crate::gateway::operator::acts::DoubtStatus;
use crate::gateway::operator::audit::{AuditPage, FindingStatus, FindingsPage, RunStatus};
use crate::gateway::operator::doubt_lists::AllDoubts;
use crate::gateway::telemetry::status::Status;
use crate::ports::store::StoreError;
use crate::ports::upkeep::Place;
use crate::protocol::key::KeyId;
use crate::server::{Gateway, admin_acts};

const MOST: u32 = 50;
/// Time over which the journal is listed: the same as in `onceway audit`.
const BACK: Duration = Duration::from_secs(30 * 86_400);
/// Time for which a finding stays among the first lines: longer than a weekend, and no longer than
/// an operator needs to handle it.
const LATELY: Duration = Duration::from_secs(7 * 86_400);

pub(super) fn place(tenant: &str, key: &str) -> String {
    format!("/console/key?tenant={}&key={}", encoded(tenant), encoded(key))
}

pub(super) fn link(tenant: &str, key: &str) -> Markup {
    html! { a.key href=(place(tenant, key)) { span.soft { (tenant) " / " } (key) } }
}

pub(super) fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

fn after(visit: &Visit<'_>, list: &str) -> Option<KeyId> {
    let cursor = visit.asked(list)?;
    let (tenant, key) = cursor.split_once('/')?;
    admin_acts::id(tenant, key).ok()
}

/// Links to the next page of a list, if there is one, and back to the first.
fn pages(list: &str, is_first: bool, next: Option<&String>) -> Markup {
    html! {
        @if !is_first || next.is_some() {
            p.pages {
                @if !is_first { a href={ "/console#" (list) } { "First page" } " " }
                @if let Some(next) = next { a href={ "/console?" (list) "=" (encoded(next)) "#" (list) } { "Next page" } }
            }
        }
    }
}

/// Shows what the store knows, or says that it does not answer.
pub(super) fn told<T>(found: &Result<T, StoreError>, shown: impl FnOnce(&T) -> Markup) -> Markup {
    found.as_ref().map_or_else(silent, shown)
}

pub(super) fn silent(error: &StoreError) -> Markup {
    html! { p.notice.bad { (mark("bad", &format!("The store does not answer: {error}"))) } }
}

pub(super) async fn doubts(visit: &Visit<'_>) -> Result<AllDoubts, StoreError> {
    asking(visit)?.all_doubts(after(visit, "doubts").as_ref(), MOST).await
}

pub(super) async fn found_lately(visit: &Visit<'_>) -> Result<FindingsPage, StoreError> {
    asking(visit)?.findings(None, LATELY, MOST).await
}

/// The gateway, if its store may be asked: not in shadow mode.
pub(super) fn asking<'a>(visit: &Visit<'a>) -> Result<&'a Arc<Gateway>, StoreError> {
    match visit.gateway.shadow_report() {
        Some(_) => Err(StoreError::Definite("shadow mode: it is not asked".to_owned())),
        None => Ok(visit.gateway),
    }
}

pub(super) fn queue(visit: &Visit<'_>, found: &Result<AllDoubts, StoreError>, status: &Status) -> Markup {
    let is_first = visit.asked("doubts").is_none();
    let body = told(found, |page| {
        let quiet = if page.silent.is_empty() { "good" } else { "warn" };
        let rows = page.doubts.iter().map(|doubt| row(doubt, status.at_ms));
        html! {
            @if page.doubts.is_empty() { p { (mark(quiet, "No key is in doubt.")) } }
            @else { (table("Keys whose effect may or may not have happened, of all regions", rows)) }
            (unasked(&page.silent, "doubts"))
            (pages("doubts", is_first, page.next.as_ref()))
            @if !page.doubts.is_empty() {
                p.soft { "Keys whose rule is `probe` leave the list by themselves once the upstream says what happened." }
            }
        }
    });
    section("doubts", "In doubt", Some("now"), &body)
}

/// Names the regions of which this is unknown.
pub(super) fn unasked<'a>(silent: impl IntoIterator<Item = (&'a String, &'a String)>, what: &str) -> Markup {
    html! {
        @for (name, why) in silent {
            p.notice.bad { (mark("bad", &format!("{name} did not answer ({why}): its {what} are unknown"))) }
        }
    }
}

fn row(doubt: &DoubtStatus, now_ms: i64) -> Row<'static> {
    let place = place(&doubt.tenant, &doubt.key);
    let over = match doubt.over_in_ms {
        0 => mark("good", "over"),
        left => html! { "in " (countdown(left, "now")) },
    };
    let said =
        html! { (or_nothing(doubt.status)) @if let Some(said) = &doubt.excerpt { " " span.soft { (said) } } };
    let decide = html! {
        a href={ (place) "#settle" } { "Settle…" span.unseen { " " (doubt.key) } } " "
        a href={ (place) "#release" } { "Release…" span.unseen { " " (doubt.key) } }
    };
    let route = if doubt.route.is_empty() { NOTHING } else { &doubt.route };
    vec![
        ("Key", link(&doubt.tenant, &doubt.key)),
        ("Since", ago(doubt.since_ms, now_ms)),
        ("Route", html! { (route) " " span.soft { (doubt.path) } }),
        ("Owner", html! { (or_nothing(doubt.owner.as_ref())) }),
        ("Attempt of", html! { (doubt.origin) }),
        ("Token", html! { (doubt.token) }),
        ("Said", said),
        ("Attempts", html! { (doubt.attempts) }),
        ("Rule", html! { (doubt.recovery) }),
        ("Attempt is over", over),
        ("Decide", decide),
    ]
}

/// Makes the audit: the keys that ran at risk here, and the journal's findings.
pub(super) async fn audit(visit: &Visit<'_>) -> Markup {
    let (runs_after, place) =
        (after(visit, "runs"), visit.asked("findings").and_then(|text| text.parse().ok()));
    let gateway = visit.gateway;
    if asking(visit).is_err() {
        let body = html! { p.soft { "Shadow mode: nothing is decided, so nothing is audited." } };
        return section("audit", "Audit", Some("audit"), &body);
    }
    let (runs, findings) = tokio::join!(
        gateway.audit(runs_after.as_ref(), MOST),
        gateway.findings(place.map(Place), BACK, MOST),
    );
    let now_ms = gateway.date().as_millis();
    let body = html! {
        h3 #runs { "Keys that ran at risk" }
        p.soft { "A window alone allowed these runs: a lost region may have run them too." }
        (told(&runs, |page| at_risk(page, runs_after.is_none())))
        h3 #findings { "By the journal, last 30 days" }
        p.soft { "Doubles, and answers that came after their attempt had been released or taken over; oldest first." }
        (told(&findings, |page| journal(page, place.is_none(), now_ms)))
    };
    section("audit", "Audit", Some("audit"), &body)
}

fn at_risk(page: &AuditPage, is_first: bool) -> Markup {
    let row = |run: &RunStatus| {
        let verdict = match run.verdict {
            "clean" => mark("good", "clean"),
            "possible" => mark("warn", "possible"),
            other => mark("bad", other),
        };
        let others: Vec<&str> = run.others.iter().map(|row| row.origin.as_str()).collect();
        let others = if others.is_empty() { NOTHING.to_owned() } else { others.join(", ") };
        vec![
            ("Key", link(&run.tenant, &run.key)),
            ("Verdict", verdict),
            ("Route", html! { (run.route) }),
            ("Token", html! { (run.own.token) }),
            ("State", html! { (run.own.state) }),
            ("At risk of", html! { (run.risk.join(", ")) }),
            ("Other records", html! { (others) }),
        ]
    };
    html! {
        @if page.runs.is_empty() { p { (mark("good", "No key ran at risk.")) } }
        @else { (table("Keys that a window alone allowed to run", page.runs.iter().map(row))) }
        (pages("runs", is_first, page.next.as_ref()))
    }
}

fn journal(page: &FindingsPage, is_first: bool, now_ms: i64) -> Markup {
    let row = |finding: &FindingStatus| {
        let entry = &finding.entry;
        let kind = html! {
            (mark(if entry.kind == "double" { "bad" } else { "warn" }, &entry.kind))
            @if entry.is_unexplained() { " " (mark("bad", "unexplained: a bug")) }
        };
        vec![
            ("Key", link(&finding.tenant, &finding.key)),
            ("When", ago(entry.at_ms, now_ms)),
            ("Kind", kind),
            ("Token", html! { (or_nothing(entry.token.as_ref())) }),
            ("Status", html! { (or_nothing(entry.status)) }),
            ("What", html! { (or_nothing(entry.reason.as_ref())) }),
        ]
    };
    html! {
        @if page.findings.is_empty() { p { (mark("good", "No double and no late answer is known.")) } }
        @else { (table("Doubles and late answers", page.findings.iter().map(row))) }
        (pages("findings", is_first, page.next.as_ref()))
    }
}

//! The console's lists from the store, page by page: keys in doubt, keys that ran at risk, findings
//! of the journal.
//!
//! `gateway::operator` and `gateway::operator::audit` read the lists. A row links to the page of
//! [`super::key`]. If the store does not answer, its list is left out and the page says so. This
//! file must not show a list without a bound.

use std::time::Duration;

use form_urlencoded::byte_serialize;
use maud::{Markup, html};

use super::frame::{ago, countdown, mark, or_nothing, section, span, table};
use super::visit::Visit;
use crate::gateway::operator::acts::DoubtStatus;
use crate::gateway::operator::audit::{AuditPage, FindingsPage};
use crate::gateway::operator::doubt_lists::AllDoubts;
use crate::gateway::telemetry::status::Status;
use crate::ports::Ports;
use crate::ports::store::StoreError;
use crate::ports::upkeep::Place;
use crate::protocol::key::KeyId;
use crate::server::admin_acts;

const MOST: u32 = 50;
/// Time over which the journal is listed: the same as in `onceway audit`.
const BACK: Duration = Duration::from_secs(30 * 86_400);
/// Time for which a finding stays among the first lines: longer than a weekend, and no longer than
/// an operator needs to handle it.
const LATELY: Duration = Duration::from_secs(7 * 86_400);

/// Path of a key's page.
pub(super) fn place(tenant: &str, key: &str) -> String {
    format!("/console/key?tenant={}&key={}", encoded(tenant), encoded(key))
}

pub(super) fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

/// Key after which a list's page begins.
fn after<P: Ports>(visit: &Visit<'_, P>, list: &str) -> Option<KeyId> {
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

pub(super) fn silent(error: &StoreError) -> Markup {
    html! { p.notice.bad { (mark("bad", &format!("The store does not answer: {error}"))) } }
}

/// The doubts of all regions.
pub(super) async fn doubts<P: Ports>(visit: &Visit<'_, P>) -> Result<AllDoubts, StoreError> {
    if is_shadow(visit) {
        return Err(shadowed());
    }
    visit.gateway.all_doubts(after(visit, "doubts").as_ref(), MOST).await
}

pub(super) async fn found_lately<P: Ports>(visit: &Visit<'_, P>) -> Result<FindingsPage, StoreError> {
    if is_shadow(visit) {
        return Err(shadowed());
    }
    visit.gateway.findings(None, LATELY, MOST).await
}

pub(super) fn shadowed() -> StoreError {
    StoreError::Definite("shadow mode: it is not asked".to_owned())
}

/// True in shadow mode, where the store must not be asked.
pub(super) fn is_shadow<P: Ports>(visit: &Visit<'_, P>) -> bool {
    visit.gateway.shadow_report().is_some()
}

pub(super) fn queue<P: Ports>(
    visit: &Visit<'_, P>,
    found: &Result<AllDoubts, StoreError>,
    status: &Status,
) -> Markup {
    let is_first = visit.asked("doubts").is_none();
    let body = match found {
        Err(error) => silent(error),
        Ok(page) if page.doubts.is_empty() => {
            let quiet = if page.silent.is_empty() { "good" } else { "warn" };
            html! {
                p { (mark(quiet, "No key is in doubt.")) }
                (unasked(page))
                (pages("doubts", is_first, page.next.as_ref()))
            }
        }
        Ok(page) => {
            let heads = [
                "Key",
                "Since",
                "Route",
                "Owner",
                "Attempt of",
                "Token",
                "Said",
                "Attempts",
                "Rule",
                "Attempt is over",
                "Decide",
            ];
            let rows: Vec<Vec<Markup>> = page.doubts.iter().map(|doubt| row(doubt, status.at_ms)).collect();
            html! {
                (table("Keys whose effect may or may not have happened, of all regions", &heads, &rows))
                (unasked(page))
                (pages("doubts", is_first, page.next.as_ref()))
                p.soft { "Keys whose rule is `probe` leave the list by themselves once the upstream says what happened." }
            }
        }
    };
    section("doubts", "In doubt", Some("now"), &body)
}

/// Names the regions whose doubts are unknown.
fn unasked(page: &AllDoubts) -> Markup {
    html! {
        @for (name, why) in &page.silent {
            p.notice.bad { (mark("bad", &format!("{name} did not answer ({why}): its doubts are unknown"))) }
        }
    }
}

fn row(doubt: &DoubtStatus, now_ms: i64) -> Vec<Markup> {
    let place = place(&doubt.tenant, &doubt.key);
    let over = match doubt.over_in_ms {
        0 => mark("good", "over"),
        left => html! { "in " (countdown(left, "now")) },
    };
    let route = if doubt.route.is_empty() { "–" } else { &doubt.route };
    vec![
        html! { a.key href=(place) { span.soft { (doubt.tenant) " / " } (doubt.key) } },
        ago(doubt.since_ms, now_ms),
        html! { (route) " " span.soft { (doubt.path) } },
        html! { (or_nothing(doubt.owner.as_ref())) },
        html! { (doubt.origin) },
        html! { (doubt.token) },
        html! {
            (or_nothing(doubt.status))
            @if let Some(said) = &doubt.excerpt { " " span.soft { (said) } }
        },
        html! { (doubt.attempts) },
        html! { (doubt.recovery) },
        over,
        html! {
            a href={ (place) "#settle" } { "Settle…" span.unseen { " " (doubt.key) } } " "
            a href={ (place) "#release" } { "Release…" span.unseen { " " (doubt.key) } }
        },
    ]
}

/// Makes the audit alone, for the page's script.
pub(super) async fn part<P: Ports>(visit: &Visit<'_, P>) -> Markup {
    audit(visit).await
}

/// Makes the audit: the keys that ran at risk here, and the journal's findings.
pub(super) async fn audit<P: Ports>(visit: &Visit<'_, P>) -> Markup {
    let (runs_after, place) =
        (after(visit, "runs"), visit.asked("findings").and_then(|text| text.parse().ok()));
    let gateway = visit.gateway;
    if is_shadow(visit) {
        return section(
            "audit",
            "Audit",
            Some("audit"),
            &html! { p.soft { "Shadow mode: nothing is decided, so nothing is audited." } },
        );
    }
    let (runs, findings) = tokio::join!(
        gateway.audit(runs_after.as_ref(), MOST),
        gateway.findings(place.map(Place), BACK, MOST),
    );
    let now_ms = gateway.date().as_millis();
    let body = html! {
        h3 #runs { "Keys that ran at risk" }
        p.soft { "A window alone allowed these runs: a lost region may have run them too." }
        @match &runs {
            Ok(page) => (at_risk(page, runs_after.is_none())),
            Err(error) => (silent(error)),
        }
        h3 #findings { "By the journal, last 30 days" }
        p.soft { "Doubles, and answers that came after their attempt had been released or taken over; oldest first." }
        @match &findings {
            Ok(page) => (journal(page, place.is_none(), now_ms)),
            Err(error) => (silent(error)),
        }
    };
    section("audit", "Audit", Some("audit"), &body)
}

fn at_risk(page: &AuditPage, is_first: bool) -> Markup {
    if page.runs.is_empty() {
        return html! { p { (mark("good", "No key ran at risk.")) } (pages("runs", is_first, None)) };
    }
    let heads = ["Key", "Verdict", "Route", "Token", "State", "At risk of", "Other records"];
    let rows: Vec<Vec<Markup>> = page
        .runs
        .iter()
        .map(|run| {
            let verdict = match run.verdict {
                "clean" => mark("good", "clean"),
                "possible" => mark("warn", "possible"),
                other => mark("bad", other),
            };
            let others: Vec<&str> = run.others.iter().map(|row| row.origin.as_str()).collect();
            vec![
                html! { a.key href=(place(&run.tenant, &run.key)) { span.soft { (run.tenant) " / " } (run.key) } },
                verdict,
                html! { (run.route) },
                html! { (run.own.token) },
                html! { (run.own.state) },
                html! { (run.risk.join(", ")) },
                html! { (if others.is_empty() { "–".to_owned() } else { others.join(", ") }) },
            ]
        })
        .collect();
    html! { (table("Keys that a window alone allowed to run", &heads, &rows)) (pages("runs", is_first, page.next.as_ref())) }
}

fn journal(page: &FindingsPage, is_first: bool, now_ms: i64) -> Markup {
    if page.findings.is_empty() {
        return html! { p { (mark("good", "No double and no late answer is known.")) } (pages("findings", is_first, None)) };
    }
    let heads = ["Key", "When", "Kind", "Token", "Status", "What"];
    let rows: Vec<Vec<Markup>> = page
        .findings
        .iter()
        .map(|finding| {
            let entry = &finding.entry;
            vec![
                html! { a.key href=(place(&finding.tenant, &finding.key)) { span.soft { (finding.tenant) " / " } (finding.key) } },
                ago(entry.at_ms, now_ms),
                html! {
                    (mark(if entry.kind == "double" { "bad" } else { "warn" }, &entry.kind))
                    @if entry.is_unexplained() { " " (mark("bad", "unexplained: a bug")) }
                },
                html! { (or_nothing(entry.token.as_ref())) },
                html! { (or_nothing(entry.status)) },
                html! { (or_nothing(entry.reason.as_ref())) },
            ]
        })
        .collect();
    html! { (table("Doubles and late answers", &heads, &rows)) (pages("findings", is_first, page.next.as_ref())) }
}

/// Writes how much longer an attempt may run.
pub(super) fn left(ms: Option<u64>) -> String {
    ms.map_or("–".to_owned(), span)
}

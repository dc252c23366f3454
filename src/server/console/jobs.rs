//! The console's accepted requests of all regions, and the page of one of them with its acts.
//!
//! A region that did not answer is named: its jobs are unknown.

use http::StatusCode;
use maud::{Markup, html};

use super::frame::{self, Place, ago, countdown, forms, mark, or_nothing, section, table};
use super::lists;
use super::session::Visit;
use crate::gateway::operator::dead_letters::{JobStatus, JobsPage};
use crate::ports::store::StoreError;
use crate::server::admin_http::Answer;

/// Jobs that are shown, at most; dead letters first.
const MOST: usize = 50;

pub(super) async fn all(visit: &Visit<'_>) -> Result<JobsPage, StoreError> {
    lists::asking(visit)?.all_jobs(None).await
}

pub(super) fn place(region: &str, tenant: &str, key: &str) -> String {
    let [region, tenant, key] = [region, tenant, key].map(lists::encoded);
    format!("/console/job?region={region}&tenant={tenant}&key={key}")
}

pub(super) fn queue(found: &Result<JobsPage, StoreError>, now_ms: i64) -> Markup {
    let body = lists::told(found, |page| {
        html! {
            @if page.jobs.is_empty() {
                p { (mark(if silent(page).next().is_none() { "good" } else { "warn" }, "No accepted request waits.")) }
            } @else { (rows(page, now_ms)) }
            (lists::unasked(silent(page), "jobs"))
        }
    });
    section("jobs", "Accepted requests", Some("now"), &body)
}

fn silent(page: &JobsPage) -> impl Iterator<Item = (&String, &String)> {
    page.silent.iter().flatten()
}

fn rows(page: &JobsPage, now_ms: i64) -> Markup {
    let mut jobs: Vec<&JobStatus> = page.jobs.iter().collect();
    jobs.sort_by_key(|job| job.state != "dead");
    let left_out = jobs.len().saturating_sub(MOST);
    let row = |job: &&JobStatus| {
        let place = place(&job.region, &job.tenant, &job.key);
        vec![
            ("Key", html! { a.key href=(place) { span.soft { (job.tenant) " / " } (job.key) } }),
            ("Region", html! { (job.region) }),
            ("State", state(job)),
            ("Runs", html! { (job.runs) }),
            ("Accepted", ago(job.accepted_ms, now_ms)),
            ("Due", due(job, now_ms)),
            ("Last trouble", html! { (or_nothing(job.trouble.as_ref())) }),
            ("Act", html! { a href=(place) { "Act…" span.unseen { " " (job.key) } } }),
        ]
    };
    let rows = jobs.iter().take(MOST).map(row);
    html! {
        (table("Accepted requests that wait for a worker or an operator, of all regions", rows))
        @if left_out > 0 { p.soft { "And " (left_out) " more: " code { "onceway jobs" } " lists them." } }
    }
}

/// Names a job as an operator sees it. An act is for that and nothing else.
pub(super) fn seen(job: &JobStatus) -> String {
    format!("{} {}, run {} times", job.region, job.state, job.runs)
}

fn state(job: &JobStatus) -> Markup {
    if job.state == "dead" { mark("bad", "dead letter") } else { mark("warn", "waiting") }
}

fn due(job: &JobStatus, now_ms: i64) -> Markup {
    match (job.state.as_str(), u64::try_from(job.next_ms - now_ms)) {
        ("dead", _) => html! { (frame::NOTHING) },
        (_, Ok(left)) => html! { "in " (countdown(left, "now")) },
        (_, Err(_)) => html! { "now" },
    }
}

pub(super) async fn look_up(visit: &Visit<'_>) -> Answer {
    let asked = |name| visit.asked(name).unwrap_or_default();
    let (region, tenant, key, done) = (asked("region"), asked("tenant"), asked("key"), asked("done"));
    let is_it = |job: &&JobStatus| job.region == region && job.tenant == tenant && job.key == key;
    let (status, body) = match all(visit).await {
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, lists::silent(&error)),
        Ok(page) => match (page.jobs.iter().find(is_it), silent(&page).find(|(name, _)| **name == region)) {
            (Some(job), _) => (StatusCode::OK, shown(visit, job)),
            (None, Some(silent)) => (StatusCode::SERVICE_UNAVAILABLE, lists::unasked([silent], "jobs")),
            (None, None) if done == "drop" => (
                StatusCode::OK,
                html! { p.notice.good role="status" { (mark("good", "dropped: the job and its request are gone")) } },
            ),
            (None, None) => (
                StatusCode::NOT_FOUND,
                html! { p { (region) " has no such job: it ran, or it was dropped." } },
            ),
        },
    };
    let main = html! {
        h1 { "Accepted request " code.key { (key) } " of " code { (tenant) } }
        @if done == "retry" {
            p.notice.good role="status" { (mark("good", "given back to the workers")) }
        }
        (body)
        p { a href=(lists::place(&tenant, &key)) { "The key in all regions" } " · " a href="/console#jobs" { "Back to the accepted requests" } }
    };
    visit.page(status, "accepted request", &main)
}

fn shown(visit: &Visit<'_>, job: &JobStatus) -> Markup {
    let now_ms = visit.gateway.date().as_millis();
    let seen = seen(job);
    let place = Place { region: &job.region, tenant: &job.tenant, key: &job.key, seen: &seen };
    html! {
        dl.facts {
            div { dt { "Region" } dd { (job.region) } }
            div { dt { "State" } dd { (state(job)) } }
            div { dt { "Runs" } dd { (job.runs) } }
            div { dt { "Accepted" } dd { (ago(job.accepted_ms, now_ms)) } }
            div { dt { "Due" } dd { (due(job, now_ms)) } }
            div { dt { "Its request" } dd { @if job.kept { "erased " (frame::date(job.forget_ms)) } @else { "was erased" } } }
            div { dt { "Last trouble" } dd { (or_nothing(job.trouble.as_ref())) } }
            div { dt { "Request's id" } dd { code { (job.request_id) } } }
            div { dt { "Digest in logs" } dd { code { (job.digest) } } }
        }
        (forms(&visit.visitor, visit.region(), &place, &html! {}, &[
            ("retry", "Run it again: retry", "A worker runs it again, and its runs are counted anew.", html! {}),
            ("drop", "Give it up: drop", "The job and its request go. If nothing happened so far, its client may send it again.", html! {}),
        ]))
    }
}

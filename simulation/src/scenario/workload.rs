//! `[[workload]]`: who asks for what, how often, and what a client does when it is not answered.
//!
//! Neighbours: [`crate::play::clients`] does as it is told here. Rates are of keys, not of requests: retries come on top. It must not hold
//! a setting of the gateway.

use std::time::Duration;

use onceway::config::reader::{self, Section};
use onceway::protocol::key::Tenant;
use onceway::protocol::region::RegionName;

use super::{Known, span};

/// A kind of client.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name, in results.
    pub name: String,
    /// The path that it posts to; a route takes it.
    pub path: String,
    /// The route's name.
    pub route: String,
    /// New keys per hundred seconds, all regions together.
    pub rate: u32,
    /// How many tenants there are.
    pub tenants: u32,
    /// Where clients are; anywhere if none is named.
    pub near: Vec<RegionName>,
    /// What a client does when it is not answered.
    pub retry: Retry,
    /// Of a hundred keys, how many are sent again a while after they were answered: the client's own crash, a message delivered twice.
    pub again: u32,
    /// Of a hundred keys, how many are sent to two regions at the same time.
    pub at_two: u32,
    /// Of a hundred keys, how many somebody uses for another request, too.
    pub other_body: u32,
}

/// What a client does when it is not answered.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// How long it waits for an answer.
    pub timeout: Duration,
    /// The pause before the first retry; each one after that is twice as long, and every pause is jittered by half.
    pub first: Duration,
    /// The longest pause.
    pub most: Duration,
    /// How many requests it sends for a key, at most.
    pub attempts: u32,
    /// For how long it sends a key, at most, and does not send it any more.
    pub gives_up: Duration,
    /// For how long its name for the gateway points to a region that does not answer any more.
    pub dns: Duration,
}

/// All workloads.
pub(super) fn read(top: &Section<'_>, known: &Known<'_>) -> Vec<Workload> {
    let sections = top.tables("workload");
    if sections.is_empty() {
        top.fail("nobody asks for anything: write a [[workload]] with name and path");
    }
    sections.into_iter().filter_map(|section| workload(section, known)).collect()
}

fn workload(mut section: Section<'_>, known: &Known<'_>) -> Option<Workload> {
    let name = section.required(
        "name",
        "name it, such as name = \"payouts\"; it stands in the results",
        reader::text,
    );
    if let Some(name) = &name {
        section.rename(format!("workload {name:?}"));
    }
    let path = section.required(
        "path",
        "write the path that it posts to, such as path = \"/v1/payouts\"",
        reader::text,
    );
    let route = path.as_deref().and_then(|path| route(&section, known, path));
    let rate = section.optional("rate", |value| reader::hundredths(value, 1_000)).unwrap_or(200);
    let count = |key, most, default: u32| {
        // At most what was read.
        section.optional(key, |value| reader::number(value, 0, most)).map_or(default, |number| number as u32)
    };
    let (tenants, again, at_two) =
        (count("tenants", 1_000, 3).max(1), count("again", 100, 10), count("at_two", 100, 2));
    let other_body = count("other_body", 100, 0);
    let near = section
        .optional("near", |value| reader::list(value, |value| known.region(value)))
        .unwrap_or_default();
    let attempts = count("attempts", 1_000, 30).max(1);
    let retry = Retry {
        timeout: span(&section, "timeout", 10, 600, 3_000),
        first: span(&section, "retry_first", 1, 600, 200),
        most: span(&section, "retry_most", 1, 3_600, 4_000),
        attempts,
        gives_up: span(&section, "gives_up", 100, 86_400, 60_000),
        dns: span(&section, "dns", 0, 3_600, 5_000),
    };
    if retry.first > retry.most {
        section.fail_at(
            "retry_first",
            "retry_first is longer than retry_most: shorten it, or lengthen retry_most",
        );
    }
    section.finish();
    let (name, path, route) = (name?, path?, route?);
    Some(Workload { name, path, route, rate, tenants, near, retry, again, at_two, other_body })
}

/// The route that takes the path; one that handles keys.
fn route(section: &Section<'_>, known: &Known<'_>, path: &str) -> Option<String> {
    let routes = &known.shared?.routes;
    let handles = |name: &str| routes.policy(name).is_some();
    match routes.find(&http::Method::POST, path, &http::HeaderMap::new()) {
        onceway::gateway::route::Matched::Route(route) if handles(&route.name) => {
            Some(route.name.to_string())
        }
        _ => {
            let paths: Vec<&str> = routes
                .0
                .iter()
                .filter(|route| handles(&route.name))
                .map(|route| route.path.as_str())
                .collect();
            let text = format!(
                "no route of the routes file takes a POST with a key to {path:?}: there are {}",
                paths.join(", ")
            );
            section.fail_at("path", text);
            None
        }
    }
}

/// The name of a tenant by its number.
pub fn tenant(number: u32) -> Tenant {
    let Ok(tenant) = Tenant::parse(&format!("tenant-{number}")) else {
        unreachable!("a name of letters and digits")
    };
    tenant
}

//! `[[workload]]`: the keys of clients, their rate, and the clients' retries.
//!
//! [`crate::play::clients`] acts by it. Rates are of keys, not of requests: retries come on top.

use std::sync::Arc;
use std::time::Duration;

use onceway::config::reader::{self, Section};
use onceway::gateway::policy::route::{Matched, Policy, Route};
use onceway::protocol::key::Tenant;
use onceway::protocol::region::RegionName;

use super::known::{Known, span};

#[derive(Clone, Debug)]
pub struct Workload {
    /// The name in results.
    pub name: String,
    /// The path that it posts to; a route takes it.
    pub path: String,
    pub route: String,
    pub policy: Arc<Policy>,
    /// New keys per hundred seconds, all regions together.
    pub rate: u32,
    pub tenants: u32,
    /// The clients' regions; anywhere if none is named.
    pub near: Vec<RegionName>,
    pub retry: Retry,
    /// The percentage of answered keys that are sent again, as after a client's own crash.
    pub again: u32,
    /// The longest wait of a client before it sends an answered key again.
    pub again_within: Duration,
    /// The percentage of keys that are sent to two regions at the same time.
    pub at_two: u32,
    /// The percentage of keys that a client also uses for another request.
    pub other_body: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub timeout: Duration,
    /// The pause before the first retry. Each later one is twice as long, and every pause is
    /// jittered by half.
    pub first: Duration,
    pub most: Duration,
    /// The greatest number of requests for a key.
    pub attempts: u32,
    /// The time after which a client gives a key up.
    pub gives_up: Duration,
    /// The time for which the gateway's name still points to a region that answers no more.
    pub dns: Duration,
}

pub(super) fn read(top: &Section<'_>, known: &Known<'_>) -> Vec<Arc<Workload>> {
    let sections = top.tables("workload");
    if sections.is_empty() {
        top.fail("nobody asks for anything: write a [[workload]] with name and path");
    }
    sections.into_iter().filter_map(|section| workload(section, known).map(Arc::new)).collect()
}

fn workload(mut section: Section<'_>, known: &Known<'_>) -> Option<Workload> {
    let advice = "name it, such as name = \"payouts\"; it stands in the results";
    let name = section.required("name", advice, reader::text);
    if let Some(name) = &name {
        section.rename(format!("workload {name:?}"));
    }
    let advice = "write the path that it posts to, such as path = \"/v1/payouts\"";
    let path = section.required("path", advice, reader::text);
    let route = path.as_deref().and_then(|path| route(&section, known, path));
    let rate = section.optional("rate", |value| reader::hundredths(value, 1_000)).unwrap_or(200);
    let count = |key, most, default: u32| {
        section.optional(key, |value| reader::number(value, 0, most)).unwrap_or(default)
    };
    let tenants = count("tenants", 1_000, 3).max(1);
    let (again, at_two, other_body) =
        (count("again", 100, 10), count("at_two", 100, 2), count("other_body", 100, 0));
    let again_within = span(&section, "again_within", 1, 86_400, 20_000);
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
        let text = "retry_first is longer than retry_most: shorten it, or lengthen retry_most";
        section.fail_at("retry_first", text);
    }
    section.finish();
    let (name, path, (route, policy)) = (name?, path?, route?);
    Some(Workload {
        name,
        path,
        route,
        policy,
        rate,
        tenants,
        near,
        retry,
        again,
        again_within,
        at_two,
        other_body,
    })
}

/// The route that takes the path, if it handles keys, and its policy.
fn route(section: &Section<'_>, known: &Known<'_>, path: &str) -> Option<(String, Arc<Policy>)> {
    let routes = &known.0?.routes;
    if let Matched::Route(route) = routes.find(&http::Method::POST, path, &http::HeaderMap::new())
        && let Some(policy) = route.policy()
    {
        return Some((route.name.to_string(), policy.clone()));
    }
    let handles = |route: &&Route| route.policy().is_some();
    let paths: Vec<&str> = routes.0.iter().filter(handles).map(|route| route.path.as_str()).collect();
    let text = format!(
        "no route of the routes file takes a POST with a key to {path:?}: there are {}",
        paths.join(", ")
    );
    section.fail_at("path", text);
    None
}

pub fn tenant(number: u32) -> Tenant {
    let Ok(tenant) = Tenant::parse(&format!("tenant-{number}")) else {
        unreachable!("a name of letters and digits")
    };
    tenant
}

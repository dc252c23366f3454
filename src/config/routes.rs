//! `routes.toml`: the requests that need a key, and the policy under which a key's effect is
//! performed.
//!
//! The values are shared: they are in the digest that peers compare. `outcomes` reads the lists of
//! statuses; `across` checks each policy against the clocks. This file must not give recovery a
//! default.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderName, Method, Uri};
use toml::de::DeValue;

use super::reader::{self, At, Located, Problems, Section, Source};
use super::{outcomes, policy as tables};
use crate::gateway::policy::route::{
    Accept, Binding, Mode, NEVER_REPLAYED, PathPattern, Policy, Protection, REPLAY_HEADERS, Route,
    UPSTREAM_TIMEOUT,
};
use crate::protocol::job::Backoff;
use crate::protocol::key::Syntax;
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::Recovery;

/// A route and its place.
pub type RouteAt = Located<Route>;

/// Keys that have a meaning only on routes that handle keys.
const POLICY_KEYS: [&str; 27] = [
    "key_from",
    "forward_key",
    "forward_key_header",
    "syntax",
    "key_policy",
    "fingerprint",
    "mismatch",
    "dialect",
    "recovery",
    "max_attempts",
    "probe",
    "hold",
    "wait",
    "settle_time",
    "status_ends_attempt",
    "retention",
    "tombstone",
    "body_limit",
    "stored_limit",
    "final",
    "nothing_happened",
    "replay_headers",
    "mode",
    "accept",
    "bind",
    "escrow",
    "escrow_alone",
];

const RECOVERY: &str = "nobody can choose for you what happens to a key in doubt. Write recovery = \"rerun\" (run again: the \
upstream is idempotent by key or checks the token), \"probe\" (ask the upstream's status address, given as probe) or \"park\" (wait for an operator)";

const RERUN: &str = "runs a key in doubt again: make sure that its service is idempotent by the key, or refuses an \
    Onceway-Token below the greatest one that it has seen; else an effect can happen twice";
const BARE_503: &str = "takes a 503 without Retry-After for \"nothing happened\": proxies and load \
balancers answer 503 also when a connection broke after the request was sent, and then a retry runs a second time. Write \
\"503+Retry-After\" in its place if anything stands between the gateway and the service";

/// Reads the file. Errors are added to `problems`. Blocks.
pub fn read(path: &Path, wanted_by: &At, problems: &Problems) -> Option<Vec<RouteAt>> {
    read_text(&Source::read(path, wanted_by, problems)?, problems)
}

/// Like [`read`], for a text that was read already.
pub fn read_text(source: &Source, problems: &Problems) -> Option<Vec<RouteAt>> {
    let document = source.parse(problems)?;
    let top = Section::top(source, &document, problems);
    let sections = top.tables("route");
    if sections.is_empty() {
        top.fail(
            "no route is listed, so every POST and PATCH would be refused: write a [[route]] for each path",
        );
    }
    let mut routes: Vec<RouteAt> = Vec::new();
    for section in sections {
        let at = section.at().clone();
        if let Some(route) = route(section) {
            if route
                .policy()
                .is_some_and(|policy| policy.outcomes.classify(503, false) == Outcome::NothingHappened)
            {
                problems.advise(&at, format!("route {:?} {BARE_503}", route.name));
            }
            if route.policy().is_some_and(|policy| matches!(policy.recovery, Recovery::Rerun { .. })) {
                problems.advise(&at, format!("route {:?} {RERUN}", route.name));
            }
            routes.push(Located { at, value: route });
        }
    }
    top.finish();
    for (index, later) in routes.iter().enumerate() {
        for earlier in &routes[..index] {
            compare(&earlier.value, later, problems);
        }
        advise_on_catch_all(&routes[..index], later, problems);
    }
    Some(routes)
}

/// The route's handling of keys, as written.
#[derive(Clone, Copy)]
enum Handling {
    Required,
    Optional,
    Off,
}

fn route(mut section: Section<'_>) -> Option<Route> {
    let name =
        section.required("name", "name the route, such as name = \"charges\"; it stands in metrics", name);
    if let Some(name) = &name {
        section.rename(format!("route {name:?}"));
    }
    let methods = section.optional("methods", |value| reader::list(value, method)).unwrap_or_default();
    let path = section.required("path", "write the path it takes, such as path = \"/v1/charges\"", |value| {
        PathPattern::parse(&reader::text(value)?)
    });
    let advice = "say \"required\" (requests without a key are refused), \"optional\" or \"off\"";
    let words = [("required", Handling::Required), ("optional", Handling::Optional), ("off", Handling::Off)];
    let handling = section.required("key", advice, |value| reader::word(value, &words));
    let protection = match handling {
        Some(Handling::Off) => {
            refuse_policy(&section);
            Some(Protection::Off {
                upstream_timeout: upstream_timeout(&section),
                upstream: upstream(&section),
            })
        }
        Some(Handling::Required) => policy(&section).map(|policy| Protection::Required(Arc::new(policy))),
        Some(Handling::Optional) => policy(&section).map(|policy| Protection::Optional(Arc::new(policy))),
        None => {
            // The intended handling is not known: all keys of a policy may be written, and none
            // must be.
            for key in POLICY_KEYS.into_iter().chain(["upstream", "upstream_timeout"]) {
                section.has(key);
            }
            None
        }
    };
    let allow_overrides = section.optional("allow_overrides", reader::flag).unwrap_or(false);
    section.finish();
    Some(Route { name: name?.into(), methods, path: path?, protection: protection?, allow_overrides })
}

fn refuse_policy(section: &Section<'_>) {
    for key in POLICY_KEYS.into_iter().filter(|key| section.has(key)) {
        section.fail_at(key, format!("{key} has no effect where key = \"off\": remove it, or handle keys"));
    }
}

const MOST_TIME: Duration = Duration::from_secs(3_650 * 86_400);

fn upstream_timeout(section: &Section<'_>) -> Duration {
    let least = Duration::from_millis(10);
    let written = section.optional("upstream_timeout", |value| reader::time(value, least, MOST_TIME));
    written.unwrap_or(UPSTREAM_TIMEOUT)
}

/// The upstream that the route names. `across` checks that it exists.
fn upstream(section: &Section<'_>) -> Option<Arc<str>> {
    section.optional("upstream", name).map(Arc::from)
}

fn policy(section: &Section<'_>) -> Option<Policy> {
    let syntaxes = [("lenient", Syntax::Lenient), ("strict", Syntax::Strict)];
    let syntax =
        section.optional("syntax", |value| reader::word(value, &syntaxes)).unwrap_or(Syntax::Lenient);
    let recovery = recovery(section);
    let span = |key, least: u64, default: u64| {
        let (least, default) = (Duration::from_millis(least), Duration::from_millis(default));
        section.optional(key, |value| reader::time(value, least, MOST_TIME)).unwrap_or(default)
    };
    let size = |key, least| {
        section.optional(key, |value| reader::size(value, least, MOST_BYTES)).unwrap_or(DEFAULT_BYTES)
    };
    let bindings = [("tenant", Binding::Tenant), ("principal", Binding::Principal)];
    let (accept, keep_headers) = accept(section);
    let (fingerprint, fingerprint_headers) = tables::fingerprint(section);
    let modes = [Mode::Sync, Mode::Prefer, Mode::Accept].map(|mode| (mode.name(), mode));
    let policy = Policy {
        key_headers: tables::key_headers(
            section,
            syntax,
            matches!(recovery, Some((Recovery::Rerun { .. }, _))),
        ),
        syntax,
        key_policy: tables::key_policy(section),
        fingerprint,
        fingerprint_headers,
        mismatch: tables::mismatch(section),
        dialect: tables::dialect(section),
        recovery: Recovery::Park,
        probe: None,
        hold: span("hold", 1_000, 30_000),
        wait: span("wait", 0, 5_000),
        upstream_timeout: upstream_timeout(section),
        upstream: upstream(section),
        escrow: tables::escrow(section),
        settle_time: span("settle_time", 0, 0),
        status_ends_attempt: section.optional("status_ends_attempt", reader::flag).unwrap_or(false),
        retention: section.optional("retention", retention).unwrap_or(RETENTION),
        tombstone: span("tombstone", 0, 30 * 86_400_000),
        body_limit: size("body_limit", 0),
        stored_limit: size("stored_limit", 1),
        outcomes: outcomes::read(section),
        replay_headers: replay_headers(section),
        mode: section.optional("mode", |value| reader::word(value, &modes)).unwrap_or(Mode::Sync),
        accept,
        keep_headers,
        bind: section.optional("bind", |value| reader::word(value, &bindings)).unwrap_or(Binding::Tenant),
    };
    if policy.mode == Mode::Sync && section.has("accept") {
        section.fail_at("accept", "[route.accept] has no effect where mode = \"sync\": remove it, or write mode = \"prefer\" or \"accept\"");
    }
    let (recovery, probe) = recovery?;
    Some(Policy { recovery, probe, ..policy })
}

/// Defaults that outlast an outage of an hour: the spans between 20 runs add up to 32 to 64
/// minutes.
const ACCEPT: Accept = Accept {
    request_retention: Duration::from_secs(86_400),
    max_runs: 20,
    backoff: Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) },
};

fn accept(route: &Section<'_>) -> (Accept, Vec<HeaderName>) {
    let Some(mut section) = route.table("accept") else { return (ACCEPT, Vec::new()) };
    section.rename(format!("{} [route.accept]", route.name()));
    let most = Duration::from_secs(365 * 86_400);
    let span = |key, least: u64, default| {
        let least = Duration::from_millis(least);
        section.optional(key, |value| reader::time(value, least, most)).unwrap_or(default)
    };
    let accept = Accept {
        request_retention: span("request_retention", 1_000, ACCEPT.request_retention),
        // At most 1,000, as read.
        max_runs: section
            .optional("max_runs", |value| reader::number(value, 1, 1_000))
            .map_or(ACCEPT.max_runs, |runs| runs as u32),
        backoff: Backoff {
            first: span("backoff", 10, ACCEPT.backoff.first),
            most: span("backoff_most", 10, ACCEPT.backoff.most),
        },
    };
    if accept.backoff.first > accept.backoff.most {
        section.fail("backoff is longer than backoff_most: shorten backoff, or lengthen backoff_most");
    }
    let keep = section.optional("keep_headers", |value| reader::list(value, kept)).unwrap_or_default();
    section.finish();
    (accept, keep)
}

fn kept(value: &DeValue<'_>) -> Result<HeaderName, String> {
    let text = reader::text(value)?;
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is no header name"))?;
    match [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(&name) {
        true => Err(format!(
            "{text:?} is a credential: it is stored only where requests are sealed ([accept] key_env)"
        )),
        false => Ok(name),
    }
}

/// Stripe's value, and the usual choice of the drafts: it outlives every sensible client's retries.
const RETENTION: Retention = Retention::For(Duration::from_secs(86_400));

pub(super) fn retention(value: &DeValue<'_>) -> Result<Retention, String> {
    if value.as_str() == Some("never") {
        return Ok(Retention::Never);
    }
    let most = Duration::from_secs(3_650 * 86_400);
    reader::time(value, Duration::from_secs(1), most)
        .map(Retention::For)
        .map_err(|why| format!("{why}, or \"never\""))
}

/// Bodies are held in memory while they are read, and answers in one row.
const MOST_BYTES: usize = 256 << 20;
const DEFAULT_BYTES: usize = 1 << 20;

/// A route's rule for a key in doubt, as written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Rerun,
    Probe,
    Park,
}

fn recovery(section: &Section<'_>) -> Option<(Recovery, Option<Uri>)> {
    let words = [("rerun", Rule::Rerun), ("probe", Rule::Probe), ("park", Rule::Park)];
    let rule = section.required("recovery", RECOVERY, |value| reader::word(value, &words));
    let attempts = section.optional("max_attempts", |value| reader::number(value, 1, 1_000));
    let probe = section.optional("probe", probe_address);
    let rule = rule?;
    if rule != Rule::Rerun && section.has("max_attempts") {
        section.fail_at("max_attempts", "max_attempts belongs to recovery = \"rerun\": remove it");
    }
    if rule != Rule::Probe && section.has("probe") {
        section.fail_at("probe", "probe belongs to recovery = \"probe\": remove it, or state that recovery");
    }
    match rule {
        Rule::Rerun => {
            // At most 1,000, as read.
            Some((Recovery::Rerun { max_attempts: attempts.unwrap_or(3) as u32 }, None))
        }
        Rule::Probe => {
            if !section.has("probe") {
                section.fail("probe is missing: recovery = \"probe\" asks the upstream there, such as probe = \"/effects\"");
            }
            Some((Recovery::Probe, Some(probe?)))
        }
        Rule::Park => Some((Recovery::Park, None)),
    }
}

fn probe_address(value: &DeValue<'_>) -> Result<Uri, String> {
    let text = reader::text(value)?;
    let wrong = || format!("{text:?} must be a path of the upstream, such as \"/effects\"");
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    if !text.starts_with('/') || uri.authority().is_some() { Err(wrong()) } else { Ok(uri) }
}

fn replay_headers(section: &Section<'_>) -> Vec<HeaderName> {
    let added = section.optional("replay_headers", |value| reader::list(value, header)).unwrap_or_default();
    let mut all: Vec<HeaderName> = REPLAY_HEADERS.iter().map(|name| HeaderName::from_static(name)).collect();
    for header in added {
        if !all.contains(&header) {
            all.push(header);
        }
    }
    all
}

fn header(value: &DeValue<'_>) -> Result<HeaderName, String> {
    let text = reader::text(value)?;
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is no header name"))?;
    if NEVER_REPLAYED.contains(&name.as_str()) {
        return Err(format!(
            "{text:?} describes one connection, one moment or one client and is never replayed: remove it"
        ));
    }
    Ok(name)
}

fn method(value: &DeValue<'_>) -> Result<Method, String> {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let text = reader::text(value)?;
    match KNOWN.contains(&text.as_str()) {
        true => text.parse().map_err(|_| format!("{text:?} is no method")),
        false => Err(format!("{text:?} is no method: use {}", KNOWN.join(", "))),
    }
}

fn name(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    is_name(&text)?;
    Ok(text)
}

/// Checks the name of a route or of an upstream.
pub(super) fn is_name(text: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > 64 || !text.bytes().all(allowed) {
        return Err(format!("{text:?} must be 1 to 64 letters, digits, '-', '_' or '.'"));
    }
    Ok(())
}

/// Reports faults of two routes together.
fn compare(earlier: &Route, later: &RouteAt, problems: &Problems) {
    let Located { at, value: later } = later;
    if earlier.name == later.name {
        problems
            .add(at, format!("route {:?} is listed twice: give each route a name of its own", later.name));
    }
    let methods = earlier.methods.is_empty()
        || !later.methods.is_empty() && later.methods.iter().all(|method| earlier.methods.contains(method));
    if methods && covers(earlier.path.as_str(), later.path.as_str()) {
        problems.add(
            at,
            format!(
                "route {:?} is never reached: route {:?} before it takes all of {}; put the narrower route first",
                later.name,
                earlier.name,
                later.path.as_str()
            ),
        );
    }
}

/// Advises about a wide route without keys that comes after routes with keys inside its path.
fn advise_on_catch_all(before: &[RouteAt], later: &RouteAt, problems: &Problems) {
    let Located { at, value: wide } = later;
    let changes = wide.methods.is_empty() || wide.methods.iter().any(|method| !method.is_safe());
    let (path, keyed) = (wide.path.as_str(), |route: &&RouteAt| route.value.policy().is_some());
    let inside = before.iter().filter(keyed).find(|route| covers(path, route.value.path.as_str()));
    if let (None, true, Some(inside)) = (wide.policy(), changes && path.ends_with('*'), inside) {
        let (name, keyed) = (&wide.name, &inside.value.name);
        problems.advise(
            at,
            format!(
                "route {name:?} lets all other paths under {path} pass without a key, behind route \
                 {keyed:?}: so does a path that only the service takes for one of route {keyed:?}. \
                 List the paths that need no key, or only methods that change nothing"
            ),
        );
    }
}

/// True if `wide` matches every path that `narrow` matches. Both are parsed patterns.
fn covers(wide: &str, narrow: &str) -> bool {
    let any = |segment: &str| segment.starts_with('{');
    let (mut wide, mut narrow) = (wide[1..].split('/'), narrow[1..].split('/'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some("*"), _) | (None, None) => return true,
            (Some(_) | None, Some("*")) | (Some(_), None) | (None, Some(_)) => return false,
            (Some(w), Some(n)) if any(w) && !n.is_empty() => {}
            (Some(w), Some(n)) if w == n => {}
            (Some(_), Some(_)) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_pattern_covers_narrower_ones_only() {
        for (wide, narrow) in [
            ("/a", "/a"),
            ("/a/{x}", "/a/b"),
            ("/a/{x}", "/a/{y}"),
            ("/a/*", "/a/b/c"),
            ("/*", "/"),
            ("/a/*", "/a/*"),
            ("/a/*", "/a/{x}/*"),
        ] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("/a", "/b"),
            ("/a/b", "/a/{x}"),
            ("/a/{x}", "/a/"),
            ("/a/{x}", "/a/*"),
            ("/a", "/a/b"),
            ("/a/b", "/a"),
            ("/a/{x}", "/a/b/c"),
        ] {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
    }
}

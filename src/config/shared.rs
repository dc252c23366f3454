//! Settings that must be equal in all regions, and their digest over one canonical text.
//!
//! Peers compare the digest in their pings (`ports::peers`). The text is built from the checked
//! values, not from the files. So comments, the order of keys and the spelling of spans make no
//! difference. The ring has its own digest in the view. This file must not hold anything that may
//! differ between regions, nor any secret.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::ring::RingFile;
use super::routes::RouteAt;
use super::timings::timings;
use crate::gateway::authority::failover::{self, Failover};
use crate::gateway::credentials::Credentials;
use crate::gateway::limits::concurrency::MostAtOnce;
use crate::gateway::policy::route::{
    Accept, Binding, Dialect, Escrow, KeyHeaders, Mismatch, Mode, Policy, Protection, Route, Routes,
    UPSTREAM_TIMEOUT,
};
use crate::gateway::policy::signature::FingerprintRule;
use crate::gateway::settings::Settings;
use crate::ports::upstream::ForwardKey;
use crate::protocol::digest::{Digest32, digest};
use crate::protocol::key::Syntax;
use crate::protocol::key_policy::KeyPolicy;
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::{Outcome, OutcomeSets};
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;
use crate::protocol::time::Drift;
use crate::protocol::versions::Versions;
use crate::protocol::view::View;
use crate::protocol::window::WindowRule;

/// Settings that must be equal in all regions, checked: those of `ring.toml` and `routes.toml`.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The deployment's name.
    pub deployment: String,
    /// The ring.
    pub ring: Arc<Ring>,
    /// Bounds on the error of clocks.
    pub drift: Drift,
    /// Time for which an answer is stored beyond the promise.
    pub skew: Duration,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Rules of takeovers, and the witnesses.
    pub failover: Failover,
    /// The routes.
    pub routes: Routes,
    /// Digest of all of these but the ring, which views carry.
    pub digest: Digest32,
}

impl Shared {
    /// Makes it from the two files.
    pub(super) fn of(file: RingFile, routes: Vec<RouteAt>) -> Self {
        let RingFile { deployment, place_by: _, pins: _, ring, drift, skew, heartbeat, failover } = file;
        let routes = Routes(routes.into_iter().map(|route| route.value).collect());
        let clocks = Clocks { drift, skew, heartbeat };
        let text = canonical(&deployment, &routes, &clocks, &failover);
        let digest = digest("onceway/shared/1", &[text.as_bytes()]);
        Self { deployment, ring, drift, skew, heartbeat, failover, routes, digest }
    }

    /// The same settings with other routes, and with the digest of both.
    pub(super) fn with_routes(&self, routes: Routes) -> Self {
        let clocks = Clocks { drift: self.drift, skew: self.skew, heartbeat: self.heartbeat };
        let text = canonical(&self.deployment, &routes, &clocks, &self.failover);
        Self { routes, digest: digest("onceway/shared/1", &[text.as_bytes()]), ..self.clone() }
    }

    /// Settings of a region's gateway whose region file says nothing more.
    pub fn settings(&self, me: RegionName, generation: u32, credentials: Arc<Credentials>) -> Settings {
        Settings {
            me,
            generation,
            routes: self.routes.clone(),
            credentials,
            drift: self.drift,
            skew: self.skew,
            seals_requests: false,
            timings: timings(self.heartbeat),
            quota: None,
            most_at_once: MostAtOnce::default(),
            shadow: false,
            failover: self.failover.clone(),
            upstream_health: None,
            shared: self.digest,
            speaks: Versions::OURS,
        }
    }

    /// The routes that propose escrow. The register says which have it.
    pub fn escrow(&self) -> BTreeSet<Arc<str>> {
        let lodged = |route: &&Route| route.policy().is_some_and(|policy| policy.escrow != Escrow::Off);
        self.routes.0.iter().filter(lodged).map(|route| route.name.clone()).collect()
    }

    /// The view of a gateway before it has read its region's gate.
    pub fn view(&self) -> View {
        View::unfounded(self.ring.clone())
    }
}

/// The clocks' settings of `ring.toml`.
struct Clocks {
    drift: Drift,
    skew: Duration,
    heartbeat: Duration,
}

/// One line per value. Writing to a `String` cannot fail.
fn canonical(deployment: &str, routes: &Routes, clocks: &Clocks, failover: &Failover) -> String {
    let Clocks { drift, skew, heartbeat } = clocks;
    let mut text = format!(
        "deployment {deployment}\ndrift {} {}\nskew {}\nheartbeat {}\n",
        drift.ppm,
        drift.margin.as_nanos(),
        skew.as_nanos(),
        heartbeat.as_nanos()
    );
    write_failover(&mut text, failover);
    for route in &routes.0 {
        let methods: Vec<&str> = route.methods.iter().map(|method| method.as_str()).collect();
        let _ = writeln!(text, "route {} {:?} {}", route.name, methods, route.path.as_str());
        // Only if it is not the default, as in `write_newer`.
        if route.allow_overrides {
            text.push_str("allows overrides\n");
        }
        if let Some(upstream) = route.upstream() {
            let _ = writeln!(text, "goes to {upstream}");
        }
        match &route.protection {
            // Without the default, as gateways of before 2026-11-24 write it.
            Protection::Off { upstream_timeout: UPSTREAM_TIMEOUT, .. } => text.push_str("off\n"),
            Protection::Off { upstream_timeout, .. } => {
                let _ = writeln!(text, "off {}", upstream_timeout.as_nanos());
            }
            Protection::Optional(policy) => write_policy(&mut text, "optional", policy),
            Protection::Required(policy) => write_policy(&mut text, "required", policy),
        }
    }
    text
}

fn write_failover(text: &mut String, failover: &Failover) {
    let Failover {
        mode,
        lease,
        window: WindowRule { percent, floor, beyond },
        drain_limit,
        kill_after,
        stable_for,
        min_serving,
        max_life,
        witnesses,
    } = failover;
    let mode = match mode {
        failover::Mode::Automatic => "automatic",
        failover::Mode::Manual => "manual",
    };
    let spans = [lease, floor, beyond, drain_limit, kill_after, stable_for].map(Duration::as_nanos);
    let witnesses: Vec<&str> = witnesses.iter().map(RegionName::as_str).collect();
    let _ = writeln!(text, "failover {mode} {percent} {spans:?} {min_serving} {witnesses:?}");
    // Gateways that do not know it go by the same settings without it.
    if let Some(life) = max_life {
        let _ = writeln!(text, "max life {}", written(*life));
    }
}

fn write_policy(text: &mut String, key: &str, policy: &Policy) {
    let Policy {
        key_headers,
        syntax,
        key_policy: KeyPolicy { min_length, max_length, alphabet, form, entropy_bits },
        fingerprint,
        fingerprint_headers,
        mismatch,
        dialect,
        recovery,
        probe,
        hold,
        wait,
        upstream_timeout,
        settle_time,
        status_ends_attempt,
        retention,
        tombstone,
        body_limit,
        stored_limit,
        outcomes,
        replay_headers,
        mode,
        accept,
        keep_headers,
        bind,
        // Of every route, whether it has a policy or not.
        upstream: _,
        // The register says which routes are under escrow; the file only proposes.
        escrow: _,
    } = policy;
    let syntax = match syntax {
        Syntax::Lenient => "lenient",
        Syntax::Strict => "strict",
    };
    let fingerprint = match fingerprint {
        FingerprintRule::Whole => "whole".to_owned(),
        FingerprintRule::Signature(selection) => selection.canonical(),
    };
    let mismatch = match mismatch {
        Mismatch::Unprocessable => "unprocessable",
        Mismatch::Conflict => "conflict",
    };
    let bind = match bind {
        Binding::Tenant => "tenant",
        Binding::Principal => "principal",
    };
    let probe = probe.as_ref().map(ToString::to_string).unwrap_or_default();
    let spans = [hold, wait, upstream_timeout, settle_time, tombstone].map(Duration::as_nanos);
    let retention = written(*retention);
    let mut headers: Vec<&str> = replay_headers.iter().map(|name| name.as_str()).collect();
    headers.sort_unstable();
    write_newer(text, *status_ends_attempt, *dialect, keep_headers);
    if *key_headers != KeyHeaders::default() {
        let KeyHeaders { from, to: ForwardKey { header, form } } = key_headers;
        let _ = writeln!(text, "key from {from:?} as {header} {form:?}");
    }
    if !fingerprint_headers.is_empty() {
        let _ = writeln!(text, "compares {fingerprint_headers:?}");
    }
    write_accept(text, *mode, accept);
    let keys = format!("{min_length} {max_length} {} {} {entropy_bits}", alphabet.name(), form.name());
    let _ = writeln!(text, "{keys} {fingerprint:?} {mismatch}");
    let _ = writeln!(
        text,
        "{key} {syntax} {recovery} {probe:?} {spans:?} {retention} {body_limit} {stored_limit} {} {headers:?} {bind}",
        letters(outcomes)
    );
}

fn written(retention: Retention) -> String {
    match retention {
        Retention::For(span) => span.as_nanos().to_string(),
        Retention::Never => "never".to_owned(),
    }
}

/// Writes newer settings only if they are not the default, so that they make no difference to
/// gateways that do not know them.
fn write_newer(text: &mut String, status_ends_attempt: bool, dialect: Dialect, keep_headers: &[HeaderName]) {
    if dialect == Dialect::Stripe {
        text.push_str("dialect stripe\n");
    }
    if status_ends_attempt {
        text.push_str("status ends attempt\n");
    }
    if !keep_headers.is_empty() {
        let mut kept: Vec<&str> = keep_headers.iter().map(|name| name.as_str()).collect();
        kept.sort_unstable();
        let _ = writeln!(text, "keeps {kept:?}");
    }
}

/// One letter for each status.
fn letters(outcomes: &OutcomeSets) -> String {
    let letter = |status| match (outcomes.classify(status, false), outcomes.classify(status, true)) {
        (Outcome::Final, _) => 'f',
        (Outcome::NothingHappened, _) => 'n',
        (Outcome::Unknown, Outcome::NothingHappened) => 'r',
        (Outcome::Unknown, Outcome::Unknown | Outcome::Final) => 'u',
    };
    (200..=599).map(letter).collect()
}

fn write_accept(text: &mut String, mode: Mode, accept: &Accept) {
    let Accept { request_retention, max_runs, backoff } = accept;
    let runs = [*request_retention, backoff.first, backoff.most].map(|span| span.as_nanos());
    let _ = writeln!(text, "{} {max_runs} {runs:?}", mode.name());
}

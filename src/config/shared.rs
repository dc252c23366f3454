//! The digest of the settings that all regions must share, over one canonical text.
//!
//! Neighbours: peers compare it in their pings (`ports::peers`). The text is built from the checked values, not from the files, so
//! comments, order of keys and ways to write a span make no difference; the ring has a digest of its own in the view. It
//! must not hold anything that may differ between regions, nor any secret.

use std::fmt::Write;
use std::time::Duration;

use crate::gateway::authority::{self, Failover};
use crate::gateway::route::{Accept, Binding, Mismatch, Mode, Policy, Protection, Routes};
use crate::gateway::signature::FingerprintRule;
use crate::protocol::decide::Recovery;
use crate::protocol::digest::{Digest32, digest};
use crate::protocol::key::Syntax;
use crate::protocol::key_policy::KeyPolicy;
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::Outcome;
use crate::protocol::region::RegionName;
use crate::protocol::time::Drift;
use crate::protocol::window::WindowRule;

/// What `ring.toml` says of clocks.
pub struct Clocks {
    /// How wrong they may be.
    pub drift: Drift,
    /// How much longer than promised an answer is stored.
    pub skew: Duration,
    /// Between two heartbeats.
    pub heartbeat: Duration,
}

/// The digest over routes, clocks, heartbeats and failover.
pub fn shared(deployment: &str, routes: &Routes, clocks: &Clocks, failover: &Failover) -> Digest32 {
    digest("onceway/shared/1", &[canonical(deployment, routes, clocks, failover).as_bytes()])
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
        match &route.protection {
            Protection::Off => text.push_str("off\n"),
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
        witnesses,
    } = failover;
    let mode = match mode {
        authority::Mode::Automatic => "automatic",
        authority::Mode::Manual => "manual",
    };
    let spans = [lease, floor, beyond, drain_limit, kill_after, stable_for].map(Duration::as_nanos);
    let witnesses: Vec<&str> = witnesses.iter().map(RegionName::as_str).collect();
    let _ = writeln!(text, "failover {mode} {percent} {spans:?} {min_serving} {witnesses:?}");
}

fn write_policy(text: &mut String, key: &str, policy: &Policy) {
    let Policy {
        syntax,
        key_policy: KeyPolicy { min_length, max_length, alphabet, form, entropy_bits },
        fingerprint,
        mismatch,
        recovery,
        probe,
        hold,
        wait,
        upstream_timeout,
        settle_time,
        retention,
        tombstone,
        body_limit,
        stored_limit,
        outcomes,
        replay_headers,
        mode,
        accept,
        bind,
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
    let recovery = match recovery {
        Recovery::Rerun { max_attempts } => format!("rerun {max_attempts}"),
        Recovery::Probe => "probe".to_owned(),
        Recovery::Park => "park".to_owned(),
    };
    let bind = match bind {
        Binding::Tenant => "tenant",
        Binding::Principal => "principal",
    };
    let probe = probe.as_ref().map(ToString::to_string).unwrap_or_default();
    let spans = [hold, wait, upstream_timeout, settle_time, tombstone].map(Duration::as_nanos);
    let retention = match retention {
        Retention::For(span) => span.as_nanos().to_string(),
        Retention::Never => "never".to_owned(),
    };
    let mut headers: Vec<&str> = replay_headers.iter().map(|name| name.as_str()).collect();
    headers.sort_unstable();
    let outcomes: String = (200..=599)
        .map(|status| match outcomes.classify(status) {
            Outcome::Final => 'f',
            Outcome::NothingHappened => 'n',
            Outcome::Unknown => 'u',
        })
        .collect();
    write_accept(text, *mode, accept);
    let keys = format!("{min_length} {max_length} {} {} {entropy_bits}", alphabet.name(), form.name());
    let _ = writeln!(text, "{keys} {fingerprint:?} {mismatch}");
    let _ = writeln!(
        text,
        "{key} {syntax} {recovery} {probe:?} {spans:?} {retention} {body_limit} {stored_limit} {outcomes} {headers:?} {bind}"
    );
}

fn write_accept(text: &mut String, mode: Mode, accept: &Accept) {
    let Accept { request_retention, max_runs, backoff } = accept;
    let runs = [*request_retention, backoff.first, backoff.most].map(|span| span.as_nanos());
    let _ = writeln!(text, "{} {max_runs} {runs:?}", mode.name());
}

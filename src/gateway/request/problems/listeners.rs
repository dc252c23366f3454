//! The problems of requests that the listeners refuse before the gateway sees them.
//!
//! `server::public` and `server::peer` refuse with these codes, [`super::page`] explains them. A
//! code that is used there and missing here fails a test (`tests/suites/policy.rs`). Must not hold
//! the gateway's own codes.

use super::kinds::{Kind, kinds};

/// The listeners' kinds, clients' first.
pub(super) const KINDS: &[Kind] = kinds! {
    "bad-request" "The request is malformed"
        "The request's head, target or framing can be read in more than one way, so nothing was made of it. Send it as RFC 9112 has it: one Host, one length, a path as its target."
    "method-not-supported" "The method is not supported"
        "CONNECT and TRACE are not passed on by this gateway."
    "head-too-large" "The request's head is too large"
        "Send at most 100 headers, and 64 KiB of them."
    "head-too-slow" "The request's head took too long"
        "Nothing was made of the request. Send it again, with the same key, over a new connection."
    "target-too-long" "The target is too long"
        "Send at most 8 KiB of path and query."
    "expectation-failed" "The expectation cannot be met"
        "Send Expect: 100-continue, or no Expect at all."
    "not-a-peer-message" "There is no such peer message"
        "Between gateways: run neighbouring versions of onceway in all regions."
    "peer-version" "The peer speaks no protocol version that is spoken here"
        "Between gateways: run neighbouring versions of onceway in all regions, see docs/operate/upgrade.md."
    "peer-forged" "The certificate is of another region"
        "Between gateways: a message names the region that its sender's certificate names."
    "peer-forbidden" "The peer may not say this here"
        "Between gateways: the table of deploy/PEERS.md says who may; revoke what a region that left still has."
    "peer-revoked" "The certificate was revoked"
        "Between gateways: a region that was removed stays out; another certificate lets a present one in."
    "bad-peer-message" "The peer's message is malformed"
        "Between gateways: run neighbouring versions of onceway in all regions."
    "peer-body-too-large" "The body of the forward is too large"
        "Between gateways: run one configuration in all regions."
    "peer-body-broken" "The body of the forward did not arrive"
        "Between gateways: the sender tells its client that the outcome is unknown."
};

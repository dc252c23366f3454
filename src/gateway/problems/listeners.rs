//! The problems of requests that the listeners refuse before the gateway sees them.
//!
//! `server::public` and `server::peer` refuse with these codes, [`super::page`] explains them. A
//! code that is used there and missing here fails a test (`tests/suites/policy.rs`). Must not hold
//! the gateway's own codes.

use super::Kind;

/// The listeners' kinds, clients' first.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        code: "bad-request",
        title: "The request is malformed",
        advice: "The request's head, target or framing can be read in more than one way, so nothing was made of it. Send it as RFC 9112 has it: one Host, one length, a path as its target.",
    },
    Kind {
        code: "method-not-supported",
        title: "The method is not supported",
        advice: "CONNECT and TRACE are not passed on by this gateway.",
    },
    Kind {
        code: "head-too-large",
        title: "The request's head is too large",
        advice: "Send at most 100 headers, and 64 KiB of them.",
    },
    Kind {
        code: "head-too-slow",
        title: "The request's head took too long",
        advice: "Nothing was made of the request. Send it again, with the same key, over a new connection.",
    },
    Kind {
        code: "target-too-long",
        title: "The target is too long",
        advice: "Send at most 8 KiB of path and query.",
    },
    Kind {
        code: "expectation-failed",
        title: "The expectation cannot be met",
        advice: "Send Expect: 100-continue, or no Expect at all.",
    },
    Kind {
        code: "not-a-peer-message",
        title: "There is no such peer message",
        advice: "Between gateways: run neighbouring versions of onceway in all regions.",
    },
    Kind {
        code: "peer-version",
        title: "The peer speaks no protocol version that is spoken here",
        advice: "Between gateways: run neighbouring versions of onceway in all regions, see docs/operate/upgrade.md.",
    },
    Kind {
        code: "peer-forged",
        title: "The certificate is of another region",
        advice: "Between gateways: a message names the region that its sender's certificate names.",
    },
    Kind {
        code: "peer-forbidden",
        title: "The peer may not say this here",
        advice: "Between gateways: the table of deploy/PEERS.md says who may; revoke what a region that left still has.",
    },
    Kind {
        code: "peer-revoked",
        title: "The certificate was revoked",
        advice: "Between gateways: a region that was removed stays out; another certificate lets a present one in.",
    },
    Kind {
        code: "bad-peer-message",
        title: "The peer's message is malformed",
        advice: "Between gateways: run neighbouring versions of onceway in all regions.",
    },
    Kind {
        code: "peer-body-too-large",
        title: "The body of the forward is too large",
        advice: "Between gateways: run one configuration in all regions.",
    },
    Kind {
        code: "peer-body-broken",
        title: "The body of the forward did not arrive",
        advice: "Between gateways: the sender tells its client that the outcome is unknown.",
    },
];

//! The words of every problem of a gateway: its code, its title, and advice for its reader.
//!
//! [`super::page`] shows them beside those of [`super::listeners`]. Must not say anything that is
//! true for only some answers of a code: clients act on the advice without reading more.

/// One kind of problem, for the documentation page.
pub(super) struct Kind {
    pub(super) code: &'static str,
    pub(super) title: &'static str,
    pub(super) advice: &'static str,
}

macro_rules! kinds {
    ($($code:literal $title:literal $advice:literal)*) => {
        &[$(Kind { code: $code, title: $title, advice: $advice }),*]
    };
}
pub(super) use kinds;

pub(super) const KINDS: &[Kind] = kinds! {
    "key-missing" "This route requires an Idempotency-Key"
        "Send one header, Idempotency-Key, with a fresh random value such as a UUID for every intended effect, and the same value for every retry of it."
    "key-empty" "The Idempotency-Key is empty"
        "Send 1 to 255 visible ASCII characters."
    "key-too-long" "The Idempotency-Key is too long"
        "Send at most 255 characters."
    "key-malformed" "The Idempotency-Key is malformed"
        "Send visible ASCII characters, best as a quoted string: Idempotency-Key: \"8e03978e-40d5-43dd-bc93-6894a57f9324\"."
    "key-repeated" "More than one Idempotency-Key"
        "Send exactly one header with exactly one value."
    "key-weak" "The Idempotency-Key is too easy to guess"
        "Send a fresh random value for every intended effect, such as a UUID of version 4 or 7. A counter, a date or a word is used twice sooner or later, and the second effect would be lost."
    "credential-invalid" "No valid credential"
        "Send Authorization: Bearer followed by a token that this gateway knows."
    "no-route" "No route takes this request"
        "State-changing requests are refused unless a route says how they are protected. Check method and path, or ask the operator to add a route."
    "path-spelling" "The path is another spelling of one that asks for a key"
        "Nothing was stored or sent. Some upstreams read this path as one that a route with keys takes: after decoding it, without its repeated or trailing slashes or its parameters, or with other letters. Send the path as the route writes it, with its key."
    "override-refused" "A header names another method or path"
        "Nothing was stored or sent. Send the method and the path that are meant, without headers such as X-HTTP-Method-Override or X-Original-URL; or ask the operator to allow them on this route."
    "body-too-large" "The request body is over this route's limit"
        "Send a smaller body; nothing was stored or sent."
    "body-broken" "The request body could not be read"
        "The body broke off before its end; nothing was stored or sent. Send the request again with the same key."
    "fingerprint-impossible" "The request cannot be compared with a retry"
        "This route compares requests by fields of a JSON body. Send application/json in UTF-8 without a byte order mark, without two members of one name, without numbers from 2^53 on or beyond a double's precision, without half surrogate pairs, and nested at most 64 levels deep. Nothing was stored or sent."
    "key-reused" "The Idempotency-Key was used for another request"
        "A key names one intended effect. Use a fresh key for a new request; repeat the exact request to get its answer again."
    "key-expired" "The Idempotency-Key is past its retention"
        "The key was used, its answer is no longer kept, and it never runs again. Find out by other means whether the effect happened, then use a fresh key."
    "in-progress" "The first request with this key is still running"
        "Send the same request again with the same key after Retry-After."
    "key-unknown" "There is no such key"
        "No request with this key is known here. A request that was refused before it ran leaves no key behind."
    "dead-letter" "The accepted request could not be run"
        "It was accepted and its runs failed, or its request may no longer be stored. An operator has to retry or drop it; until then no retry runs it. Never send it with a fresh key before you know what became of it: the status address tells."
    "outcome-unknown" "It is not known whether the effect happened"
        "Retry with the same key after Retry-After: the effect happens at most once. Never retry with a fresh key. Where safe_to_retry stays true and the answer stays unknown, an operator has to look."
    "store-unavailable" "The key store does not answer"
        "Nothing was sent. Retry with the same key after Retry-After."
    "not-founded" "This deployment runs no keys yet"
        "Nothing was sent. An operator has to found it once with `onceway init`; retry with the same key after that."
    "gateway-outdated" "This gateway is too old for its deployment"
        "Nothing was sent. Retry with the same key after Retry-After: a gateway of a newer version has to answer."
    "quota-exceeded" "The tenant is over one of its quotas"
        "Nothing was stored or sent. Send it again with the same key after Retry-After; start keys, retry and ask for their state more slowly; a new key may have to wait until older ones are forgotten."
    "overloaded" "The gateway has all the requests that it can take at once"
        "Nothing was stored or sent. Send it again with the same key after Retry-After; it may be answered by another gateway then."
    "moving" "The key's home is moving"
        "Nothing was sent. Retry with the same key after Retry-After."
    "not-authoritative" "This region may not run the key now"
        "Nothing was sent. Retry with the same key after Retry-After."
    "home-unavailable" "The key's home region cannot be reached"
        "Retry with the same key after Retry-After. If an earlier attempt reached the home region, the retry will find its answer."
    "escrow-unavailable" "The key's claim could not be stored in a second region"
        "Nothing was sent. Retry with the same key after Retry-After."
    "upstream-unavailable" "The upstream cannot be reached"
        "Nothing was sent. Retry with the same key after Retry-After."
    "upstream-credential" "The upstream refuses this gateway"
        "The gateway's own credential for the upstream is wrong or was withdrawn, so nothing happened. An operator has to put it right; retry with the same key after Retry-After."
    "upstream-broke" "The upstream broke off before it answered"
        "The request was sent without an Idempotency-Key and may have taken effect. Repeat it only if its method is idempotent; else find out by other means first."
    "upstream-timeout" "The upstream did not answer in time"
        "The request was sent without an Idempotency-Key and may have taken effect, now or later. Repeat it only if its method is idempotent; else find out by other means first."
    "stopping" "This gateway is stopping"
        "Nothing was sent. Retry with the same key."
    "body-not-kept" "The answer's body was too large to keep"
        "The effect happened once and its status is replayed; the first client got the body. Fetch the resource by other means."
};

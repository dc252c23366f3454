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

pub(super) const KINDS: &[Kind] = &[
    Kind {
        code: "key-missing",
        title: "This route requires an Idempotency-Key",
        advice: "Send one header, Idempotency-Key, with a fresh random value such as a UUID for every intended effect, and the same value for every retry of it.",
    },
    Kind {
        code: "key-empty",
        title: "The Idempotency-Key is empty",
        advice: "Send 1 to 255 visible ASCII characters.",
    },
    Kind {
        code: "key-too-long",
        title: "The Idempotency-Key is too long",
        advice: "Send at most 255 characters.",
    },
    Kind {
        code: "key-malformed",
        title: "The Idempotency-Key is malformed",
        advice: "Send visible ASCII characters, best as a quoted string: Idempotency-Key: \"8e03978e-40d5-43dd-bc93-6894a57f9324\".",
    },
    Kind {
        code: "key-repeated",
        title: "More than one Idempotency-Key",
        advice: "Send exactly one header with exactly one value.",
    },
    Kind {
        code: "key-weak",
        title: "The Idempotency-Key is too easy to guess",
        advice: "Send a fresh random value for every intended effect, such as a UUID of version 4 or 7. A counter, a date or a word is used twice sooner or later, and the second effect would be lost.",
    },
    Kind {
        code: "credential-invalid",
        title: "No valid credential",
        advice: "Send Authorization: Bearer followed by a token that this gateway knows.",
    },
    Kind {
        code: "no-route",
        title: "No route takes this request",
        advice: "State-changing requests are refused unless a route says how they are protected. Check method and path, or ask the operator to add a route.",
    },
    Kind {
        code: "path-spelling",
        title: "The path is another spelling of one that asks for a key",
        advice: "Nothing was stored or sent. Some upstreams read this path as one that a route with keys takes: after decoding it, without its repeated or trailing slashes or its parameters, or with other letters. Send the path as the route writes it, with its key.",
    },
    Kind {
        code: "override-refused",
        title: "A header names another method or path",
        advice: "Nothing was stored or sent. Send the method and the path that are meant, without headers such as X-HTTP-Method-Override or X-Original-URL; or ask the operator to allow them on this route.",
    },
    Kind {
        code: "body-too-large",
        title: "The request body is over this route's limit",
        advice: "Send a smaller body; nothing was stored or sent.",
    },
    Kind {
        code: "body-broken",
        title: "The request body could not be read",
        advice: "The body broke off before its end; nothing was stored or sent. Send the request again with the same key.",
    },
    Kind {
        code: "fingerprint-impossible",
        title: "The request cannot be compared with a retry",
        advice: "This route compares requests by fields of a JSON body. Send application/json in UTF-8 without a byte order mark, without two members of one name, without numbers from 2^53 on or beyond a double's precision, without half surrogate pairs, and nested at most 64 levels deep. Nothing was stored or sent.",
    },
    Kind {
        code: "key-reused",
        title: "The Idempotency-Key was used for another request",
        advice: "A key names one intended effect. Use a fresh key for a new request; repeat the exact request to get its answer again.",
    },
    Kind {
        code: "key-expired",
        title: "The Idempotency-Key is past its retention",
        advice: "The key was used, its answer is no longer kept, and it never runs again. Find out by other means whether the effect happened, then use a fresh key.",
    },
    Kind {
        code: "in-progress",
        title: "The first request with this key is still running",
        advice: "Send the same request again with the same key after Retry-After.",
    },
    Kind {
        code: "key-unknown",
        title: "There is no such key",
        advice: "No request with this key is known here. A request that was refused before it ran leaves no key behind.",
    },
    Kind {
        code: "dead-letter",
        title: "The accepted request could not be run",
        advice: "It was accepted and its runs failed, or its request may no longer be stored. An operator has to retry or drop it; until then no retry runs it. Never send it with a fresh key before you know what became of it: the status address tells.",
    },
    Kind {
        code: "outcome-unknown",
        title: "It is not known whether the effect happened",
        advice: "Retry with the same key after Retry-After: the effect happens at most once. Never retry with a fresh key. Where safe_to_retry stays true and the answer stays unknown, an operator has to look.",
    },
    Kind {
        code: "store-unavailable",
        title: "The key store does not answer",
        advice: "Nothing was sent. Retry with the same key after Retry-After.",
    },
    Kind {
        code: "quota-exceeded",
        title: "The tenant is over one of its quotas",
        advice: "Nothing was stored or sent. Send it again with the same key after Retry-After; start keys, retry and ask for their state more slowly; a new key may have to wait until older ones are forgotten.",
    },
    Kind {
        code: "overloaded",
        title: "The gateway has all the requests that it can take at once",
        advice: "Nothing was stored or sent. Send it again with the same key after Retry-After; it may be answered by another gateway then.",
    },
    Kind {
        code: "moving",
        title: "The key's home is moving",
        advice: "Nothing was sent. Retry with the same key after Retry-After.",
    },
    Kind {
        code: "not-authoritative",
        title: "This region may not run the key now",
        advice: "Nothing was sent. Retry with the same key after Retry-After.",
    },
    Kind {
        code: "home-unavailable",
        title: "The key's home region cannot be reached",
        advice: "Retry with the same key after Retry-After. If an earlier attempt reached the home region, the retry will find its answer.",
    },
    Kind {
        code: "escrow-unavailable",
        title: "The key's claim could not be stored in a second region",
        advice: "Nothing was sent. Retry with the same key after Retry-After.",
    },
    Kind {
        code: "upstream-unavailable",
        title: "The upstream cannot be reached",
        advice: "Nothing was sent. Retry with the same key after Retry-After.",
    },
    Kind {
        code: "upstream-broke",
        title: "The upstream broke off before it answered",
        advice: "The request was sent without an Idempotency-Key and may have taken effect. Repeat it only if its method is idempotent; else find out by other means first.",
    },
    Kind {
        code: "upstream-timeout",
        title: "The upstream did not answer in time",
        advice: "The request was sent without an Idempotency-Key and may have taken effect, now or later. Repeat it only if its method is idempotent; else find out by other means first.",
    },
    Kind {
        code: "stopping",
        title: "This gateway is stopping",
        advice: "Nothing was sent. Retry with the same key.",
    },
    Kind {
        code: "body-not-kept",
        title: "The answer's body was too large to keep",
        advice: "The effect happened once and its status is replayed; the first client got the body. Fetch the resource by other means.",
    },
];

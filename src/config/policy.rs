//! The tables of a route: `[route.key_policy]`, `[route.fingerprint]`, the form of its refusals,
//! and its escrow.
//!
//! `protocol::key_policy` and `gateway::policy::signature` hold the values. A missing key keeps the
//! gateway's default. This file must not read any other key of a route.

use http::HeaderName;
use toml::de::DeValue;

use super::reader::{self, Section};
use crate::adapters::headers::{FORWARDED_PREFIX, RESERVED_PREFIX, is_hop_by_hop, is_under};
use crate::gateway::policy::route::{Alone, Dialect, Escrow, KeyHeaders, Mismatch};
use crate::gateway::policy::signature::{FingerprintRule, Pointer, Selection};
use crate::ports::upstream::{ForwardKey, KeyForm};
use crate::protocol::key::{Key, Syntax};
use crate::protocol::key_policy::{Alphabet, Form, KeyPolicy};

/// Most fields that a signature names: each is compared at every level of a body.
const MOST_FIELDS: usize = 64;

/// Reads the rules for keys. An error is reported, and the default stays.
pub fn key_policy(route: &Section<'_>) -> KeyPolicy {
    let usual = KeyPolicy::default();
    let Some(section) = below(route, "key_policy") else { return usual };
    let length = |key, default| {
        // At most 255, as read.
        section
            .optional(key, |value| reader::number(value, 1, Key::MAX_LEN as u64))
            .map_or(default, |length| length as usize)
    };
    let alphabets = [Alphabet::Visible, Alphabet::UrlSafe, Alphabet::Hex].map(|one| (one.name(), one));
    let forms = [Form::Any, Form::Uuid, Form::UuidV4, Form::UuidV7].map(|one| (one.name(), one));
    let bits = |value: &DeValue<'_>| reader::number(value, 0, u64::from(KeyPolicy::MOST_BITS));
    let policy = KeyPolicy {
        min_length: length("min_length", usual.min_length),
        max_length: length("max_length", usual.max_length),
        alphabet: section
            .optional("alphabet", |value| reader::word(value, &alphabets))
            .unwrap_or(usual.alphabet),
        form: section.optional("form", |value| reader::word(value, &forms)).unwrap_or(usual.form),
        // At most 32, as read.
        entropy_bits: section.optional("entropy_bits", bits).map_or(usual.entropy_bits, |bits| bits as u32),
    };
    fits(&policy, &section);
    section.finish();
    policy
}

/// Reports rules that no key could meet together: such rules are an error, not a way to close a
/// route.
fn fits(policy: &KeyPolicy, section: &Section<'_>) {
    const UUID_LENGTH: usize = 36;
    let KeyPolicy { min_length, max_length, alphabet, form, entropy_bits: _ } = policy;
    if min_length > max_length {
        section
            .fail_at("min_length", format!("min_length {min_length} is more than max_length {max_length}"));
    }
    let is_uuid = match form {
        Form::Any => false,
        Form::Uuid | Form::UuidV4 | Form::UuidV7 => true,
    };
    if is_uuid && !(*min_length..=*max_length).contains(&UUID_LENGTH) {
        section
            .fail_at("form", format!("form {:?} has 36 characters, which the lengths exclude", form.name()));
    }
    if is_uuid && *alphabet == Alphabet::Hex {
        section.fail_at("alphabet", format!("form {:?} has dashes, which \"hex\" excludes", form.name()));
    }
}

/// Headers that two tries of one request may differ in, beside those of one connection, those that
/// the listener writes, and those that it takes away.
const NEVER_COUNTED: [&str; 9] = [
    "authorization",
    "content-length",
    "date",
    "forwarded",
    "host",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "x-request-id",
];

/// Headers that cannot hold a key, beside those of one connection and the listener's.
const NO_KEY: [&str; 8] =
    ["authorization", "content-length", "content-type", "cookie", "date", "expect", "forwarded", "host"];

/// Reads the parts of a body, and the headers, that count for the fingerprint. An error is
/// reported, and the default stays.
pub fn fingerprint(route: &Section<'_>) -> (FingerprintRule, Vec<HeaderName>) {
    let Some(section) = below(route, "fingerprint") else { return (FingerprintRule::Whole, Vec::new()) };
    let headers = section.optional("headers", counted);
    let include = section.optional("include", fields);
    let exclude = section.optional("exclude", fields);
    let rule = match (section.has("include"), section.has("exclude")) {
        (true, true) => {
            section.fail("include and exclude are both written: keep one");
            FingerprintRule::Whole
        }
        (false, false) if section.has("headers") => FingerprintRule::Whole,
        (false, false) => {
            section.fail(
                "say include = [\"/amount\"] (only these fields count) or exclude = [\"/metadata\"] (all but these) or headers = [\"Stripe-Account\"], or remove the table",
            );
            FingerprintRule::Whole
        }
        (true, false) | (false, true) => include
            .map(Selection::Include)
            .or(exclude.map(Selection::Exclude))
            .map_or(FingerprintRule::Whole, FingerprintRule::Signature),
    };
    section.finish();
    (rule, headers.unwrap_or_default())
}

/// Names of headers in their order, each once.
fn counted(value: &DeValue<'_>) -> Result<Vec<HeaderName>, String> {
    let one = |item: &DeValue<'_>| {
        let text = reader::text(item)?;
        let name =
            HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is no header name"))?;
        let listeners = [FORWARDED_PREFIX, RESERVED_PREFIX].iter().any(|prefix| is_under(&name, prefix));
        match listeners || is_hop_by_hop(&name) || NEVER_COUNTED.contains(&name.as_str()) {
            true => Err(format!("{text:?} may differ between two tries of one request: remove it")),
            false => Ok(name),
        }
    };
    let mut names = reader::list(value, one)?;
    names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    Ok(names)
}

/// Reads the headers that a key is read from, and the one in which the upstream gets it. An error
/// is reported, and the default stays.
pub fn key_headers(route: &Section<'_>, syntax: Syntax, reruns: bool) -> KeyHeaders {
    let defaults = KeyHeaders::default();
    let from = route.optional("key_from", |value| {
        let mut names: Vec<HeaderName> = Vec::new();
        for name in reader::list(value, |item| {
            let text = reader::text(item)?;
            key_header(text.strip_prefix("header:").ok_or_else(|| {
                format!(
                    "{text:?} must be \"header:\" and the header's name, such as \"header:Idempotency-Key\""
                )
            })?)
        })? {
            if names.contains(&name) {
                return Err(format!("{name} stands there twice: remove one"));
            }
            names.push(name);
        }
        if names.is_empty() { Err("must name at least one header".to_owned()) } else { Ok(names) }
    });
    let forms = [("quoted", KeyForm::Quoted), ("bare", KeyForm::Bare), ("as-sent", KeyForm::AsSent)];
    let form = route.optional("forward_key", |value| reader::word(value, &forms)).unwrap_or(KeyForm::Quoted);
    let header = route.optional("forward_key_header", |value| key_header(&reader::text(value)?));
    if form == KeyForm::AsSent && reruns && syntax == Syntax::Lenient {
        route.fail_at(
            "forward_key",
            "forward_key = \"as-sent\" gives \"abc\" and abc, which are one key here, to the upstream as two, so recovery = \"rerun\" would \
             run twice: write \"quoted\" or \"bare\", or syntax = \"strict\"",
        );
    }
    KeyHeaders {
        from: from.unwrap_or(defaults.from),
        to: ForwardKey { header: header.unwrap_or(defaults.to.header), form },
    }
}

fn key_header(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is no header name"))?;
    let listeners = [FORWARDED_PREFIX, RESERVED_PREFIX].iter().any(|prefix| is_under(&name, prefix));
    let is_key = name == "idempotency-key";
    match listeners || is_hop_by_hop(&name) || (!is_key && NO_KEY.contains(&name.as_str())) {
        true => Err(format!("{text:?} has a meaning of its own: name another header")),
        false => Ok(name),
    }
}

fn fields(value: &DeValue<'_>) -> Result<Vec<Pointer>, String> {
    let pointers = reader::list(value, |item| Pointer::parse(&reader::text(item)?))?;
    if pointers.is_empty() || pointers.len() > MOST_FIELDS {
        return Err(format!("must name 1 to {MOST_FIELDS} fields, not {}", pointers.len()));
    }
    let twice = pointers.iter().enumerate().find(|(index, one)| pointers[..*index].contains(one));
    match twice {
        Some((_, one)) => Err(format!("{:?} is listed twice", one.as_str())),
        None => Ok(pointers),
    }
}

/// Reads the dialect for a key that was used for another request.
pub fn mismatch(route: &Section<'_>) -> Mismatch {
    let read = |value: &DeValue<'_>| match reader::number(value, 400, 499) {
        Ok(422) => Ok(Mismatch::Unprocessable),
        Ok(409) => Ok(Mismatch::Conflict),
        Ok(_) | Err(_) => Err("must be 422 or 409".to_owned()),
    };
    route.optional("mismatch", read).unwrap_or(Mismatch::Unprocessable)
}

/// Reads the form of refusals.
pub fn dialect(route: &Section<'_>) -> Dialect {
    let words = [("plain", Dialect::Plain), ("stripe", Dialect::Stripe)];
    let dialect = route.optional("dialect", |value| reader::word(value, &words)).unwrap_or(Dialect::Plain);
    if dialect == Dialect::Stripe && route.has("mismatch") {
        route.fail_at(
            "mismatch",
            "mismatch has no effect where dialect = \"stripe\", which answers 400: remove it",
        );
    }
    dialect
}

/// Reads whether claims are lodged with the next serving region, and what happens while there is
/// none.
pub fn escrow(route: &Section<'_>) -> Escrow {
    let alone = [("refuse", Alone::Refuse), ("run", Alone::Run)];
    let alone = route.optional("escrow_alone", |value| reader::word(value, &alone)).unwrap_or(Alone::Refuse);
    let kinds = [
        ("off", Escrow::Off),
        ("claim", Escrow::Claim(alone)),
        ("claim+answer", Escrow::ClaimAndAnswer(alone)),
    ];
    let escrow = route.optional("escrow", |value| reader::word(value, &kinds));
    if escrow.unwrap_or(Escrow::Off) == Escrow::Off && route.has("escrow_alone") {
        // A wrong kind was meant to be a kind.
        if escrow.is_some() || !route.has("escrow") {
            route.fail_at(
                "escrow_alone",
                "escrow_alone has no effect without escrow: remove it, or write escrow = \"claim\" or \"claim+answer\"",
            );
        }
    }
    escrow.unwrap_or(Escrow::Off)
}

/// A table of the route. Messages name it with its route.
fn below<'a>(route: &Section<'a>, key: &'static str) -> Option<Section<'a>> {
    let mut section = route.table(key)?;
    section.rename(format!("{} [route.{key}]", route.name()));
    Some(section)
}

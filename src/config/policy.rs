//! A route's policy: its declared settings, and those with rules of their own.
//!
//! `settings` reads the plain ones. An error is reported, and the default stays. Recovery has none.

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderName, Uri};
use toml::de::DeValue;

use super::reader::{self, Section};
use super::settings;
use super::values::{header, upstream_path};
use crate::adapters::headers::{FORWARDED_PREFIX, RESERVED_PREFIX, is_hop_by_hop, is_under};
use crate::gateway::policy::route::{
    Alone, Dialect, Escrow, Mismatch, Mode, NEVER_REPLAYED, Policy, REPLAY_HEADERS,
};
use crate::gateway::policy::settings::KEYED;
use crate::gateway::policy::signature::{Pointer, Selection};
use crate::ports::upstream::KeyForm;
use crate::protocol::key::Syntax;
use crate::protocol::key_policy::{Alphabet, Form, KeyPolicy};
use crate::protocol::outcome::{Outcome, OutcomeSets, StatusSet};
use crate::protocol::record::Recovery;

const RECOVERY: &str = "nobody can choose for you what happens to a key in doubt. Write recovery = \"rerun\" (run again: the \
upstream is idempotent by key or checks the token), \"probe\" (ask the upstream's status address, given as probe) or \"park\" (wait for an operator)";

/// Most fields that a signature names: each is compared at every level of a body.
const MOST_FIELDS: usize = 64;

/// Reads the policy of a route that handles keys. `policy` has defaults, and what every route has.
pub fn read(route: &Section<'_>, mut policy: Policy) -> Option<Policy> {
    settings::read(route, None, &KEYED, &mut policy);
    let recovery = recovery(route);
    if let Some(section) = below(route, "key_policy", &mut policy) {
        fits(&policy.key_policy, &section);
    }
    accept(route, &mut policy);
    fingerprint(route, &mut policy);
    key_headers(route, &mut policy);
    let reruns = matches!(recovery, Some((Recovery::Rerun { .. }, _)));
    if policy.key_headers.to.form == KeyForm::AsSent && reruns && policy.syntax == Syntax::Lenient {
        let why = "forward_key = \"as-sent\" gives \"abc\" and abc, which are one key here, to the upstream as two, so recovery = \
             \"rerun\" would run twice: write \"quoted\" or \"bare\", or syntax = \"strict\"";
        route.fail_at("forward_key", why);
    }
    policy.mismatch = mismatch(route);
    if policy.dialect == Dialect::Stripe && route.has("mismatch") {
        let why = "mismatch has no effect where dialect = \"stripe\", which answers 400: remove it";
        route.fail_at("mismatch", why);
    }
    policy.escrow = escrow(route);
    policy.outcomes = outcomes(route);
    policy.replay_headers = replay_headers(route);
    let (recovery, probe) = recovery?;
    Some(Policy { recovery, probe, ..policy })
}

/// A table of the route. Its plain settings are read, and messages name it with its route.
fn below<'a>(route: &Section<'a>, key: &'static str, policy: &mut Policy) -> Option<Section<'a>> {
    let mut section = route.table(key)?;
    section.rename(format!("{} [route.{key}]", route.name()));
    settings::read(&section, Some(key), &KEYED, policy);
    Some(section)
}

fn headers(
    value: &DeValue<'_>,
    wrong: impl Fn(&HeaderName) -> Option<&'static str>,
) -> Result<Vec<HeaderName>, String> {
    reader::list(value, |item| header(&reader::text(item)?, &wrong))
}

/// True if a connection or the listener gives the header its meaning.
fn is_listeners(name: &HeaderName) -> bool {
    is_hop_by_hop(name) || [FORWARDED_PREFIX, RESERVED_PREFIX].iter().any(|prefix| is_under(name, prefix))
}

fn recovery(section: &Section<'_>) -> Option<(Recovery, Option<Uri>)> {
    let rerun = Recovery::Rerun { max_attempts: 3 };
    let words = [("rerun", rerun), ("probe", Recovery::Probe), ("park", Recovery::Park)];
    let rule = section.required("recovery", RECOVERY, |value| reader::word(value, &words));
    let most = u64::from(Recovery::MOST_ATTEMPTS);
    let attempts = section.optional("max_attempts", |value| reader::number(value, 1, most));
    let probe =
        section.optional("probe", |value| upstream_path(value, "of the upstream, such as \"/effects\""));
    let rule = rule?;
    if rule != rerun && section.has("max_attempts") {
        section.fail_at("max_attempts", "max_attempts belongs to recovery = \"rerun\": remove it");
    }
    if rule != Recovery::Probe && section.has("probe") {
        section.fail_at("probe", "probe belongs to recovery = \"probe\": remove it, or state that recovery");
    }
    if rule == Recovery::Probe && !section.has("probe") {
        section.fail(
            "probe is missing: recovery = \"probe\" asks the upstream there, such as probe = \"/effects\"",
        );
    }
    match (rule, attempts) {
        (Recovery::Rerun { .. }, Some(max_attempts)) => Some((Recovery::Rerun { max_attempts }, None)),
        (Recovery::Probe, _) => Some((rule, Some(probe?))),
        (Recovery::Rerun { .. } | Recovery::Park, _) => Some((rule, None)),
    }
}

/// Reports rules that no key could meet together: they are no way to close a route.
fn fits(policy: &KeyPolicy, section: &Section<'_>) {
    const UUID_LENGTH: usize = 36;
    let KeyPolicy { min_length: min, max_length: max, alphabet, form, entropy_bits: _ } = *policy;
    if min > max {
        section.fail_at("min_length", format!("min_length {min} is more than max_length {max}"));
    }
    if form == Form::Any {
        return;
    }
    // All others are UUIDs.
    let name = form.name();
    if !(min..=max).contains(&UUID_LENGTH) {
        section.fail_at("form", format!("form {name:?} has 36 characters, which the lengths exclude"));
    }
    if alphabet == Alphabet::Hex {
        section.fail_at("alphabet", format!("form {name:?} has dashes, which \"hex\" excludes"));
    }
}

fn accept(route: &Section<'_>, policy: &mut Policy) {
    if let Some(section) = below(route, "accept", policy) {
        if policy.accept.backoff.first > policy.accept.backoff.most {
            section.fail("backoff is longer than backoff_most: shorten backoff, or lengthen backoff_most");
        }
        let secret = |name: &HeaderName| {
            [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION]
                .contains(name)
                .then_some("is a credential: it is stored only where requests are sealed ([accept] key_env)")
        };
        let keep = section.optional("keep_headers", |value| headers(value, secret));
        policy.keep_headers = keep.unwrap_or_default();
    }
    if policy.mode == Mode::Sync && route.has("accept") {
        route.fail_at("accept", "[route.accept] has no effect where mode = \"sync\": remove it, or write mode = \"prefer\" or \"accept\"");
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

fn fingerprint(route: &Section<'_>, policy: &mut Policy) {
    let Some(section) = below(route, "fingerprint", policy) else { return };
    let differs = |name: &HeaderName| {
        (is_listeners(name) || NEVER_COUNTED.contains(&name.as_str()))
            .then_some("may differ between two tries of one request: remove it")
    };
    let mut counted = section.optional("headers", |value| headers(value, differs)).unwrap_or_default();
    counted.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    counted.dedup();
    policy.fingerprint_headers = counted;
    let include = section.optional("include", fields).map(Selection::Include);
    let exclude = section.optional("exclude", fields).map(Selection::Exclude);
    match (section.has("include"), section.has("exclude")) {
        (true, true) => section.fail("include and exclude are both written: keep one"),
        (false, false) if !section.has("headers") => section.fail(
            "say include = [\"/amount\"] (only these fields count) or exclude = [\"/metadata\"] (all but these) or headers = [\"Stripe-Account\"], or remove the table",
        ),
        (_, _) => policy.fingerprint = include.or(exclude),
    }
}

fn fields(value: &DeValue<'_>) -> Result<Vec<Pointer>, String> {
    let pointers = reader::list(value, |item| Pointer::parse(&reader::text(item)?))?;
    if pointers.is_empty() || pointers.len() > MOST_FIELDS {
        return Err(format!("must name 1 to {MOST_FIELDS} fields, not {}", pointers.len()));
    }
    match first_twice(&pointers) {
        Some(one) => Err(format!("{:?} is listed twice", one.as_str())),
        None => Ok(pointers),
    }
}

/// The first that stands there already before.
fn first_twice<T: PartialEq>(all: &[T]) -> Option<&T> {
    all.iter().enumerate().find(|(index, one)| all[..*index].contains(one)).map(|(_, one)| one)
}

fn key_headers(route: &Section<'_>, policy: &mut Policy) {
    let taken = |name: &HeaderName| {
        let is_key = name == "idempotency-key";
        (is_listeners(name) || !is_key && NO_KEY.contains(&name.as_str()))
            .then_some("has a meaning of its own: name another header")
    };
    let one = |item: &DeValue<'_>| {
        let text = reader::text(item)?;
        let name = text.strip_prefix("header:").ok_or_else(|| {
            format!("{text:?} must be \"header:\" and the header's name, such as \"header:Idempotency-Key\"")
        })?;
        header(name, taken)
    };
    let from = route.optional("key_from", |value| {
        let names = reader::some(value, "name at least one header", one)?;
        match first_twice(&names) {
            Some(name) => Err(format!("{name} stands there twice: remove one")),
            None => Ok(names),
        }
    });
    let to = route.optional("forward_key_header", |value| header(&reader::text(value)?, taken));
    let headers = &mut policy.key_headers;
    from.into_iter().for_each(|from| headers.from = from);
    to.into_iter().for_each(|to| headers.to.header = to);
}

fn mismatch(route: &Section<'_>) -> Mismatch {
    let read = |value: &DeValue<'_>| match reader::number::<u64>(value, 400, 499) {
        Ok(422) => Ok(Mismatch::Unprocessable),
        Ok(409) => Ok(Mismatch::Conflict),
        Ok(_) | Err(_) => Err("must be 422 or 409".to_owned()),
    };
    route.optional("mismatch", read).unwrap_or_default()
}

/// Reads the escrow of claims, and what happens while no next serving region is there.
fn escrow(route: &Section<'_>) -> Escrow {
    let alone = [("refuse", Alone::Refuse), ("run", Alone::Run)];
    let alone = route.optional("escrow_alone", |value| reader::word(value, &alone)).unwrap_or(Alone::Refuse);
    let kinds = [
        ("off", Escrow::Off),
        ("claim", Escrow::Claim(alone)),
        ("claim+answer", Escrow::ClaimAndAnswer(alone)),
    ];
    let escrow = route.optional("escrow", |value| reader::word(value, &kinds));
    // A wrong kind was meant to be a kind.
    let is_off = escrow == Some(Escrow::Off) || !route.has("escrow");
    if is_off && route.has("escrow_alone") {
        let why = "escrow_alone has no effect without escrow: remove it, or write escrow = \"claim\" or \"claim+answer\"";
        route.fail_at("escrow_alone", why);
    }
    escrow.unwrap_or(Escrow::Off)
}

fn replay_headers(route: &Section<'_>) -> Vec<HeaderName> {
    let never = |name: &HeaderName| {
        NEVER_REPLAYED
            .contains(&name.as_str())
            .then_some("describes one connection, one moment or one client and is never replayed: remove it")
    };
    let added = route.optional("replay_headers", |value| headers(value, never)).unwrap_or_default();
    let mut all: Vec<HeaderName> = REPLAY_HEADERS.iter().map(|name| HeaderName::from_static(name)).collect();
    for header in added {
        if !all.contains(&header) {
            all.push(header);
        }
    }
    all
}

/// Reads the outcome sets, as lists of statuses: `final = ["2xx", 404, "410-499"]`,
/// `nothing_happened = [429, "503+Retry-After"]`. After an error the defaults stay.
///
/// If only one is written, the other is its default without the statuses of the written one. A
/// status in both is an error.
fn outcomes(section: &Section<'_>) -> OutcomeSets {
    let finals = section.optional("final", statuses);
    let nothing = section.optional("nothing_happened", statuses_or_retry_after);
    let (finals, (nothing, with_retry_after)) = match (finals, nothing) {
        (None, None) => return OutcomeSets::default(),
        (Some(finals), None) => {
            let nothing = usual(Outcome::NothingHappened, &finals);
            let with_retry_after = if finals.contains(&503) { Vec::new() } else { vec![503] };
            (finals, (nothing, with_retry_after))
        }
        (None, Some((nothing, with_retry_after))) => {
            let finals = usual(Outcome::Final, &[&nothing[..], &with_retry_after].concat());
            (finals, (nothing, with_retry_after))
        }
        (Some(finals), Some(nothing)) => (finals, nothing),
    };
    let [finals, nothing, with_retry_after] =
        [finals, nothing, with_retry_after].map(|all| StatusSet::of(&all));
    OutcomeSets::new(finals, nothing, with_retry_after).unwrap_or_else(|error| {
        section.fail_at("nothing_happened", error);
        OutcomeSets::default()
    })
}

/// The default set, without these statuses.
fn usual(outcome: Outcome, without: &[u16]) -> Vec<u16> {
    let usual = OutcomeSets::default();
    let is_usual = |status: &u16| usual.classify(*status, false) == outcome && !without.contains(status);
    (200..=599).filter(is_usual).collect()
}

fn statuses(value: &DeValue<'_>) -> Result<Vec<u16>, String> {
    Ok(reader::list(value, range)?.concat())
}

/// Reads a list of statuses, and apart from them those that end in [`TOLD_WHEN`].
fn statuses_or_retry_after(value: &DeValue<'_>) -> Result<(Vec<u16>, Vec<u16>), String> {
    let (mut plain, mut with_retry_after) = (Vec::new(), Vec::new());
    let item = |value: &DeValue<'_>| {
        let text = value.as_str().and_then(|text| text.strip_suffix(TOLD_WHEN));
        match text {
            Some(text) => Ok((spelled(text)?, true)),
            None => Ok((range(value)?, false)),
        }
    };
    for (statuses, only_with_retry_after) in reader::list(value, item)? {
        if only_with_retry_after { with_retry_after.extend(statuses) } else { plain.extend(statuses) }
    }
    Ok((plain, with_retry_after))
}

/// End of an item that counts only if the upstream says when to come back.
const TOLD_WHEN: &str = "+Retry-After";

/// Reads one item of a list: `404`, `"404"`, `"4xx"` or `"400-407"`.
fn range(value: &DeValue<'_>) -> Result<Vec<u16>, String> {
    if value.is_integer() {
        return reader::number(value, 200, 599).map(|status| vec![status]);
    }
    spelled(&reader::text(value)?)
}

fn spelled(text: &str) -> Result<Vec<u16>, String> {
    let wrong = || format!("{text:?} is no status: write 404, \"4xx\" or \"400-407\", from 200 to 599");
    let number = |text: &str| text.parse::<u16>().ok().filter(|status| (200..=599).contains(status));
    let (first, last) = match (text.strip_suffix("xx"), text.split_once('-')) {
        (Some(hundreds), _) => {
            let hundreds = hundreds.parse::<u16>().ok().filter(|digit| (2..=5).contains(digit));
            hundreds.map(|digit| (digit * 100, digit * 100 + 99))
        }
        (None, Some((first, last))) => number(first).zip(number(last)),
        (None, None) => number(text).map(|status| (status, status)),
    }
    .filter(|(first, last)| first <= last)
    .ok_or_else(wrong)?;
    Ok((first..=last).collect())
}

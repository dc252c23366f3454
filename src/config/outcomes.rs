//! The outcome sets of a route, as lists of statuses: `final = ["2xx", 404, "410-499"]`, `nothing_happened = [429, 503]`.
//!
//! Neighbours: `protocol::outcome` holds the sets and their defaults, `routes` asks. A set that is not written is the default one
//! without what the other, written set claims. It must not decide what a status means where both are written: an overlap is an error.

use toml::de::DeValue;

use super::reader::{self, Section};
use crate::protocol::outcome::{Outcome, OutcomeSets, StatusSet};

/// Reads both lists of a route; what is wrong is reported and leaves the defaults.
pub fn read(section: &Section<'_>) -> OutcomeSets {
    let finals = section.optional("final", statuses);
    let nothing = section.optional("nothing_happened", statuses);
    let sets = match (finals, nothing) {
        (None, None) => return OutcomeSets::default(),
        (Some(finals), None) => {
            let nothing = usual(Outcome::NothingHappened, &finals);
            OutcomeSets::new(StatusSet::of(&finals), StatusSet::of(&nothing))
        }
        (None, Some(nothing)) => {
            let finals = usual(Outcome::Final, &nothing);
            OutcomeSets::new(StatusSet::of(&finals), StatusSet::of(&nothing))
        }
        (Some(finals), Some(nothing)) => OutcomeSets::new(StatusSet::of(&finals), StatusSet::of(&nothing)),
    };
    sets.unwrap_or_else(|error| {
        section.fail_at("nothing_happened", error);
        OutcomeSets::default()
    })
}

/// The default set, without these statuses.
fn usual(outcome: Outcome, without: &[u16]) -> Vec<u16> {
    let usual = OutcomeSets::default();
    (200..=599).filter(|status| usual.classify(*status) == outcome && !without.contains(status)).collect()
}

fn statuses(value: &DeValue<'_>) -> Result<Vec<u16>, String> {
    Ok(reader::list(value, range)?.concat())
}

/// One item of a list: `404`, `"404"`, `"4xx"` or `"400-407"`.
fn range(value: &DeValue<'_>) -> Result<Vec<u16>, String> {
    if value.is_integer() {
        return reader::number(value, 200, 599).map(|status| vec![status as u16]);
    }
    let text = reader::text(value)?;
    let wrong = || format!("{text:?} is no status: write 404, \"4xx\" or \"400-407\", from 200 to 599");
    let number = |text: &str| text.parse::<u16>().ok().filter(|status| (200..=599).contains(status));
    let (first, last) = match (text.strip_suffix("xx"), text.split_once('-')) {
        (Some(hundreds), _) => {
            let hundreds = hundreds.parse::<u16>().ok().filter(|digit| (2..=5).contains(digit));
            hundreds.map(|digit| (digit * 100, digit * 100 + 99))
        }
        (None, Some((first, last))) => number(first).zip(number(last)),
        (None, None) => number(&text).map(|status| (status, status)),
    }
    .filter(|(first, last)| first <= last)
    .ok_or_else(wrong)?;
    Ok((first..=last).collect())
}

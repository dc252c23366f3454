//! The outcome sets of a route, as lists of statuses: `final = ["2xx", 404, "410-499"]`,
//! `nothing_happened = [429, "503+Retry-After"]`.
//!
//! `protocol::outcome` holds the sets and their defaults. If only one set is written, the other is
//! its default without the statuses of the written one. This file must not decide the meaning of a
//! status in both written lists: an overlap is an error.

use toml::de::DeValue;

use super::reader::{self, Section};
use crate::protocol::outcome::{Outcome, OutcomeSets, StatusSet};

/// Reads both lists of a route. An error is reported, and the defaults stay.
pub fn read(section: &Section<'_>) -> OutcomeSets {
    let finals = section.optional("final", statuses);
    let nothing = section.optional("nothing_happened", statuses_or_told_when);
    let sets = match (finals, nothing) {
        (None, None) => return OutcomeSets::default(),
        (Some(finals), None) => {
            let nothing = usual(Outcome::NothingHappened, &finals);
            let told_when = if finals.contains(&503) { StatusSet::default() } else { StatusSet::of(&[503]) };
            OutcomeSets::new(StatusSet::of(&finals), StatusSet::of(&nothing), told_when)
        }
        (None, Some((nothing, told_when))) => {
            let claimed: Vec<u16> = nothing.iter().chain(&told_when).copied().collect();
            let finals = usual(Outcome::Final, &claimed);
            OutcomeSets::new(StatusSet::of(&finals), StatusSet::of(&nothing), StatusSet::of(&told_when))
        }
        (Some(finals), Some((nothing, told_when))) => {
            OutcomeSets::new(StatusSet::of(&finals), StatusSet::of(&nothing), StatusSet::of(&told_when))
        }
    };
    sets.unwrap_or_else(|error| {
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
fn statuses_or_told_when(value: &DeValue<'_>) -> Result<(Vec<u16>, Vec<u16>), String> {
    let (mut plain, mut told_when) = (Vec::new(), Vec::new());
    let item = |value: &DeValue<'_>| {
        let text = value.as_str().and_then(|text| text.strip_suffix(TOLD_WHEN));
        match text {
            Some(text) => Ok((spelled(text)?, true)),
            None => Ok((range(value)?, false)),
        }
    };
    for (statuses, only_told_when) in reader::list(value, item)? {
        if only_told_when { told_when.extend(statuses) } else { plain.extend(statuses) }
    }
    Ok((plain, told_when))
}

/// End of an item that counts only if the upstream says when to come back.
const TOLD_WHEN: &str = "+Retry-After";

/// Reads one item of a list: `404`, `"404"`, `"4xx"` or `"400-407"`.
fn range(value: &DeValue<'_>) -> Result<Vec<u16>, String> {
    if value.is_integer() {
        return reader::number(value, 200, 599).map(|status| vec![status as u16]);
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

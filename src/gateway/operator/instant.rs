//! Dates as people and ledgers write them: RFC 3339, a day, or seconds or milliseconds since 1970.
//!
//! The audit prints and reads with it, and the console reads.

use jiff::SignedDuration;
use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::Pieces;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// Smallest bare number that counts as milliseconds: as seconds it would be the year 5138.
const MILLIS_FROM: i64 = 100_000_000_000;

/// Milliseconds since 1970 in RFC 3339, in UTC.
pub fn stamp(millis: i64) -> String {
    format!("{:.3}Z", EPOCH.saturating_add(SignedDuration::from_millis(millis)))
}

/// Reads a date as milliseconds since 1970; `None` if it is none of these:
///
/// - `2026-01-31T10:00:00.5Z` (with `Z`, an offset, or none for UTC; a blank may stand for the
///   `T`),
/// - `2026-01-31`,
/// - a whole number since 1970: seconds, or milliseconds from 100000000000 on.
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.len() > 8 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: i64 = text.parse().ok()?;
        return if number >= MILLIS_FROM { Some(number) } else { number.checked_mul(1_000) };
    }
    let pieces = Pieces::parse(text).ok()?;
    // A day without dashes may be meant as a number. A zone's name has no meaning in UTC.
    if text.as_bytes().get(4) != Some(&b'-') || pieces.time_zone_annotation().is_some() {
        return None;
    }
    let there = pieces.date().to_datetime(pieces.time().unwrap_or(Time::midnight()));
    let ahead = pieces.to_numeric_offset().map_or(0, |offset| i64::from(offset.seconds()));
    i64::try_from(there.duration_since(EPOCH).as_millis()).ok().map(|millis| millis - ahead * 1_000)
}

#[cfg(test)]
mod tests {
    use super::{parse, stamp};

    #[test]
    fn dates_come_back() {
        for millis in
            [0, 1, 1_767_225_599_999, 1_772_236_800_000, 253_402_300_799_000, -1, -62_135_596_800_000]
        {
            assert_eq!(parse(&stamp(millis)), Some(millis), "{}", stamp(millis));
        }
        assert_eq!(stamp(1_767_225_600_000), "2026-01-01T00:00:00.000Z");
    }

    #[test]
    fn ledgers_write_dates_in_many_ways() {
        let expected = Some(1_767_268_800_500);
        for text in [
            "2026-01-01T12:00:00.5Z",
            "2026-01-01 12:00:00.500",
            "2026-01-01T14:00:00.5+02:00",
            "2026-01-01T07:30:00.500999-0430",
            "1767268800500",
            " 2026-01-01t12:00:00.5z ",
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(parse("1767268800"), Some(1_767_268_800_000));
        assert_eq!(parse("2026-01-01"), Some(1_767_225_600_000));
        assert_eq!(parse("2024-02-29T23:59"), Some(1_709_251_140_000));
        let bad = "|yesterday|2026-02-29|2026-13-01|20260101|2026-01-01T25:00|2026-01-01T10:00:00+1|01/02/2026\
            |20260101T10:00|2026-01-01T10:00[Europe/Berlin]";
        for bad in bad.split('|') {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}

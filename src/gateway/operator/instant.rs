//! Dates as people and ledgers write them: RFC 3339, a day, or seconds or milliseconds since 1970.
//!
//! The audit prints and reads with it, and the console reads. It must not read the time of day: its
//! callers pass it.

use time::Date;

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;
/// The day of 1970-01-01 in Julian days.
const EPOCH: i64 = 2_440_588;
/// Smallest bare number that counts as milliseconds: as seconds it would be the year 5138.
const MILLIS_FROM: i64 = 100_000_000_000;

/// Milliseconds since 1970 in RFC 3339, in UTC.
pub fn stamp(millis: i64) -> String {
    let (days, left) = (millis.div_euclid(DAY), millis.rem_euclid(DAY));
    let date = i32::try_from(days + EPOCH).map(Date::from_julian_day);
    let date = date.ok().and_then(Result::ok).unwrap_or(if days < 0 { Date::MIN } else { Date::MAX });
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute) = (left / 3_600_000, left / 60_000 % 60);
    let (second, milli) = (left / 1_000 % 60, left % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Reads a date as milliseconds since 1970; `None` if it is none of these:
///
/// - `2026-01-31T10:00:00.5Z` (with `Z`, an offset, or none for UTC; a blank may stand for the
///   `T`),
/// - `2026-01-31`,
/// - a whole number since 1970: seconds, or milliseconds from 100000000000 on.
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() > 8 {
        let number: i64 = text.parse().ok()?;
        return if number >= MILLIS_FROM { Some(number) } else { number.checked_mul(1_000) };
    }
    let (day, time) = match text.split_once(['T', 't', ' ']) {
        Some((day, time)) => (day, Some(time)),
        None => (text, None),
    };
    let days = days(day)?;
    Some(days * DAY + time.map_or(Some(0), time_of_day)?)
}

/// Days since 1970 of `YYYY-MM-DD`.
fn days(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let year = i32::try_from(number(parts.next()?, 4)?).ok()?;
    let mut of_two = || u8::try_from(number(parts.next()?, 2)?).ok();
    let (month, day) = (of_two()?, of_two()?);
    let date = Date::from_calendar_date(year, month.try_into().ok()?, day).ok()?;
    parts.next().is_none().then_some(i64::from(date.to_julian_day()) - EPOCH)
}

/// Milliseconds since midnight in UTC, which may lie on another day.
fn time_of_day(text: &str) -> Option<i64> {
    let (clock, offset) = match text.find(['Z', 'z', '+', '-']) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = whole.split(':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| number(second, 2))?;
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    let milli = number(&digits, 3)?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let ahead = match offset {
        "" | "Z" | "z" => 0,
        offset => {
            let (sign, rest) = offset.split_at(1);
            let (hours, minutes) = rest.split_once(':').or_else(|| rest.split_at_checked(2))?;
            let span = number(hours, 2)? * 60 + number(minutes, 2)?;
            if sign == "-" { -span } else { span }
        }
    };
    Some(((hour * 60 + minute - ahead) * 60 + second) * 1_000 + milli)
}

fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
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
        for bad in [
            "",
            "yesterday",
            "2026-02-29",
            "2026-13-01",
            "20260101",
            "2026-01-01T25:00",
            "2026-01-01T10:00:00+1",
            "01/02/2026",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}

//! Spans of time and sizes as people write them: `"250ms"`, `"10s"`, `"24h"`; `"64KiB"`, `"5MB"`.
//!
//! No unit is guessed: a bare number is an error.

use std::time::Duration;

/// Units of time, in nanoseconds, largest first.
const TIMES: [(&str, u128); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// Units of size, in bytes.
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Longest span in a file: ten years.
const LONGEST: Duration = Duration::from_secs(3_650 * 86_400);

/// Reads a span of time: a whole number and one of `us`, `ms`, `s`, `m`, `h`, `d`. Zero needs a
/// unit, too, such as `0s`. The error is one line that says how to write it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "{text:?} is no span of time: write a whole number and a unit (us, ms, s, m, h, d), such as \"10s\" or \"250ms\""
        )
    };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let (_, nanos) = TIMES.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let whole = u128::from(number) * nanos;
    match u64::try_from(whole).map(Duration::from_nanos) {
        Ok(span) if span <= LONGEST => Ok(span),
        Ok(_) | Err(_) => Err(format!("{text:?} is too long: at most \"3650d\" is taken")),
    }
}

/// Reads a size in bytes: a whole number and one of `B`, `kB`, `MB`, `KiB`, `MiB`, `GiB`. The error
/// is one line that says how to write it.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let wrong = || {
        format!(
            "{text:?} is no size: write a whole number and a unit (B, kB, MB, KiB, MiB, GiB), such as \"1MiB\""
        )
    };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let (_, bytes) = SIZES.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let size = number.checked_mul(bytes).and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| format!("{text:?} is too large"))
}

/// Writes a span as [`parse`] reads it, in the largest exact unit, rounded down below 1us.
pub fn show(span: Duration) -> String {
    let nanos = span.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    // Whole days, hours and minutes only if they are exact: "90s", not "1m30s".
    let exact = TIMES.into_iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
    let (name, unit) = exact.unwrap_or(("us", 1_000));
    format!("{}{name}", nanos / unit)
}

/// Rounds down to whole milliseconds.
pub(super) fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Writes a size as [`parse_size`] reads it, in the largest unit that is exact.
pub fn show_size(size: usize) -> String {
    let size = size as u64;
    let exact = SIZES.into_iter().rfind(|(_, unit)| size > 0 && size.is_multiple_of(*unit));
    let (name, unit) = exact.unwrap_or(("B", 1));
    format!("{}{name}", size / unit)
}

/// The number and the unit. Blanks between them are allowed.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_a_number_and_a_unit() {
        for (text, millis) in
            [("250ms", 250), ("10s", 10_000), ("2 m", 120_000), ("24h", 86_400_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "10", "s", "-1s", "1.5s", "10sec", "1m30s", "10 S", "4000d", "99999999999999999999s"]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_a_number_and_a_unit() {
        for (text, bytes) in [("0B", 0), ("5MB", 5_000_000), ("1MiB", 1 << 20), ("64 KiB", 64 << 10)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "1024", "MiB", "1mib", "1.5MiB", "-1B", "99999999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_shown_span_parses_back() {
        for text in ["0s", "250ms", "90s", "2m", "36h", "7d", "1500us"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
    }
}

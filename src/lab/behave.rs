//! Parser of the header `Demo-Behave`, by which a caller tells [`crate::upstream`] how to treat a
//! call: `slow=2s | status=500 | drop-answer | hang | big=5MB`. Commas separate several values.
//! `slow` goes with any other one, and the others exclude each other. An unknown value is an error,
//! so that a mistyped drill does not pass.

use std::time::Duration;

use http::StatusCode;

const MOST_BYTES: usize = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behave {
    /// Delay of the effect and of the answer.
    pub slow: Option<Duration>,
    pub then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The effect, and the usual answer.
    Answer,
    /// The effect, and an answer of this many bytes, or a little more for the usual answer.
    Big(usize),
    /// The effect; the connection is closed without an answer.
    DropAnswer,
    /// No effect, and this status.
    Status(StatusCode),
    /// No effect, and never an answer.
    Hang,
}

impl Then {
    pub fn has_effect(self) -> bool {
        match self {
            Then::Answer | Then::Big(_) | Then::DropAnswer => true,
            Then::Status(_) | Then::Hang => false,
        }
    }
}

impl Behave {
    /// Parses all `Demo-Behave` lines; none means an ordinary answer. The error names the word.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Behave, String> {
        let (mut slow, mut then) = (None, None);
        for word in lines.flat_map(|line| line.split(',')).map(str::trim).filter(|word| !word.is_empty()) {
            let asks = |form: &str| format!("`{word}`: write {form}");
            let asked = match word.split_once('=').unwrap_or((word, "")) {
                ("slow", value) => {
                    let span = parse_duration(value);
                    slow = Some(span.ok_or_else(|| asks("a time such as slow=2s or slow=300ms"))?);
                    continue;
                }
                ("status", value) => value
                    .parse()
                    .ok()
                    .filter(|status| (200..600).contains(status))
                    .and_then(|status| StatusCode::from_u16(status).ok())
                    .map(Then::Status)
                    .ok_or_else(|| asks("a final status such as status=500"))?,
                ("big", value) => parse_size(value)
                    .map(Then::Big)
                    .ok_or_else(|| asks("a size of at most 1GB, such as big=5MB"))?,
                ("drop-answer", "") => Then::DropAnswer,
                ("hang", "") => Then::Hang,
                _ => return Err(format!("`{word}` is not one of slow=, status=, drop-answer, hang, big=")),
            };
            if then.replace(asked).is_some() {
                return Err(format!("`{word}` contradicts what stands before it"));
            }
        }
        Ok(Behave { slow, then: then.unwrap_or(Then::Answer) })
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

fn parse_size(text: &str) -> Option<usize> {
    let (number, unit) = split_unit(text)?;
    let bytes: u32 = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KIB" => 1 << 10,
        "MIB" => 1 << 20,
        _ => return None,
    };
    // Exact below 2^53, far above the bound.
    let size = number * f64::from(bytes);
    (size <= MOST_BYTES as f64).then_some(size as usize)
}

fn split_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_behaviour_is_understood_alone_and_with_others() {
        for (lines, slow, then) in [
            (&[""][..], 0, Then::Answer),
            (&["status=402"], 0, Then::Status(StatusCode::PAYMENT_REQUIRED)),
            (&["drop-answer"], 0, Then::DropAnswer),
            (&["hang"], 0, Then::Hang),
            (&["big=5MB"], 0, Then::Big(5_000_000)),
            (&["big=1.5KiB"], 0, Then::Big(1536)),
            (&["slow=2s"], 2_000, Then::Answer),
            (&["slow=1500ms, drop-answer"], 1_500, Then::DropAnswer),
            (&["drop-answer", "slow=1.5s"], 1_500, Then::DropAnswer),
        ] {
            let slow = (slow > 0).then_some(Duration::from_millis(slow));
            assert_eq!(Behave::parse(lines.iter().copied()), Ok(Behave { slow, then }), "{lines:?}");
        }
    }

    #[test]
    fn unknown_behaviours_are_refused() {
        let texts =
            "fast|slow|slow=2|slow=-1s|status=99|status=100|status=x|big=2GB|big=1XB|hang=1|hang, status=500";
        for text in texts.split('|') {
            assert!(Behave::parse(std::iter::once(text)).is_err(), "{text}");
        }
    }
}

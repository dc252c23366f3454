//! Plain values of TOML: texts, numbers, spans, lists, words. An error says what must be written,
//! and repeats the value only if it cannot be a secret.

use std::time::Duration;

use toml::de::DeValue;

use super::span::{parse, parse_size, show, show_size};

/// A reader of one value; its error says what must be written.
pub trait Reads<T>: Fn(&DeValue<'_>) -> Result<T, String> {}

impl<T, F: Fn(&DeValue<'_>) -> Result<T, String>> Reads<T> for F {}

pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Reads a text.
pub fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value.as_str() {
        Some("") => Err("must not be empty".to_owned()),
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("must be a text in quotes, not {}", kind(value))),
    }
}

/// Reads `true` or `false`.
pub fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("must be true or false, not {}", kind(value)))
}

/// Reads a whole number in these bounds. The message does not repeat it: it may be the seed.
pub fn number<T: TryFrom<u64>>(value: &DeValue<'_>, least: u64, most: u64) -> Result<T, String> {
    let range = match most {
        u64::MAX => format!("must be a whole number from {least} to 2^64 - 1"),
        most => format!("must be a whole number from {least} to {most}"),
    };
    let DeValue::Integer(integer) = value else { return Err(format!("{range}, not {}", kind(value))) };
    match u64::from_str_radix(integer.as_str(), integer.radix()) {
        Ok(number) if (least..=most).contains(&number) => T::try_from(number).map_err(|_| range),
        Ok(_) | Err(_) => Err(range),
    }
}

/// Reads a number from 0 to `most` with at most two decimals, in hundredths.
pub fn hundredths(value: &DeValue<'_>, most: u32) -> Result<u32, String> {
    let range = format!("must be a number from 0 to {most} with at most two decimals, such as 2 or 2.5");
    let (whole, decimals) = match value {
        DeValue::Integer(_) => {
            return number(value, 0, most.into()).map(|whole: u32| whole * 100).map_err(|_| range);
        }
        DeValue::Float(float) => float.as_str().split_once('.').ok_or(&range)?,
        other => return Err(format!("{range}, not {}", kind(other))),
    };
    let digits =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (Some(whole), Some(part)): (Option<u32>, Option<u32>) = (digits(whole), digits(decimals)) else {
        return Err(range);
    };
    let part = match decimals.len() {
        1 => part * 10,
        2 => part,
        _ => return Err(range),
    };
    match whole.checked_mul(100).and_then(|whole| whole.checked_add(part)) {
        Some(all) if all <= most * 100 => Ok(all),
        Some(_) | None => Err(range),
    }
}

/// Reads a span of time between two others.
pub fn time(value: &DeValue<'_>, least: Duration, most: Duration) -> Result<Duration, String> {
    between(value, "a span of time", (least, most), parse, show)
}

/// Reads a size in bytes between two others.
pub fn size(value: &DeValue<'_>, least: usize, most: usize) -> Result<usize, String> {
    between(value, "a size", (least, most), parse_size, show_size)
}

fn between<T: PartialOrd + Copy>(
    value: &DeValue<'_>,
    what: &str,
    (least, most): (T, T),
    parse: fn(&str) -> Result<T, String>,
    show: fn(T) -> String,
) -> Result<T, String> {
    let (lowest, highest) = (show(least), show(most));
    let Some(text) = value.as_str() else {
        let other = kind(value);
        return Err(format!("must be {what} in quotes, from {lowest:?} to {highest:?}, not {other}"));
    };
    let found = parse(text)?;
    if found < least || found > most {
        return Err(format!("{text:?} is out of range: use {lowest:?} to {highest:?}"));
    }
    Ok(found)
}

/// Reads a list. `item` reads each item.
pub fn list<T>(value: &DeValue<'_>, item: impl Reads<T>) -> Result<Vec<T>, String> {
    let Some(items) = value.as_array() else { return Err(format!("must be a list, not {}", kind(value))) };
    items.iter().map(|one| item(one.get_ref())).collect()
}

/// Reads a list that may not be empty: of what kind it is then said to need one.
pub fn some<T>(value: &DeValue<'_>, kind: &str, item: impl Reads<T>) -> Result<Vec<T>, String> {
    let all = list(value, item)?;
    if all.is_empty() { Err(format!("must {kind}")) } else { Ok(all) }
}

/// Reads one of a few words, each with its meaning.
pub fn word<T: Copy>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    let known = known.join(" or ");
    let Some(text) = value.as_str() else { return Err(format!("must be {known}, not {}", kind(value))) };
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| format!("must be {known}, not {text:?}"))
}

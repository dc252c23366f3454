//! Words for single values: texts, dates and spans of time, for people.
//!
//! Commands show what a gateway sent with them. A value that it did not send is "-". This file must
//! not let a control character through to the terminal.

use serde_json::Value;

/// One value as a word; nothing and unknown things are "-".
pub fn word(value: &Value) -> String {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "NO".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => printable(text),
    }
}

/// The entries of a list; none of anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The entries of a list as words, with commas.
pub fn words(value: &Value) -> String {
    list(value).iter().map(word).collect::<Vec<_>>().join(", ")
}

/// A share of the keys in percent.
pub fn share(value: &Value) -> String {
    value.as_f64().map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

/// A text without control characters, which could rewrite the terminal that shows it.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Seconds, in the greatest unit that fits.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Milliseconds since 1970 as a date.
pub fn date(millis: &Value) -> String {
    let Some(at) = millis.as_u64() else { return "-".to_owned() };
    let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at);
    httpdate::fmt_http_date(at)
}

//! A gateway's values, for people: single values as words, and lines that line up.
//!
//! A value that was not sent is "-". Nothing is shortened: a reader searches the text. No control
//! character may get through to the terminal.

use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// The rows below one another, two blanks between columns, no blanks at line ends.
pub fn columns(sides: &[Side], rows: &[Vec<String>]) -> String {
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..sides.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(sides).zip(&widths).map(|((cell, side), width)| match side {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Rows under a head: names between bars, with `>` before those of numbers.
pub fn table(head: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let side = |name: &str| if name.starts_with('>') { Side::Right } else { Side::Left };
    let sides: Vec<Side> = head.split('|').map(side).collect();
    let names = head.split('|').map(|name| name.trim_start_matches('>').to_owned()).collect();
    columns(&sides, &std::iter::once(names).chain(rows).collect::<Vec<_>>())
}

pub fn pairs<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    columns(&[Side::Left; 2], &rows.collect::<Vec<_>>())
}

/// A whole number with a comma between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A bar of at most `width` characters, in eighths.
pub fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

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

pub fn words(value: &Value) -> String {
    list(value).iter().map(word).collect::<Vec<_>>().join(", ")
}

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

pub fn date(millis: &Value) -> String {
    let Some(at) = millis.as_u64() else { return "-".to_owned() };
    let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at);
    httpdate::fmt_http_date(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let text = columns(&[Side::Left, Side::Right], &[row("a", "1"), row("long", "100"), row("é", "")]);
        assert_eq!(text, "a       1\nlong  100\né\n");
    }

    #[test]
    fn thousands_have_commas() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (65_536, "65,536"), (1_234_567, "1,234,567")]
        {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn bars_are_in_eighths() {
        assert_eq!((bar(0.0, 4), bar(1.0, 4), bar(0.5, 1)), (String::new(), "████".into(), "▌".into()));
    }
}

//! Lines columns up, for people.
//!
//! Nothing is shortened: a reader searches the text.

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Texts.
    Left,
    /// Numbers.
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

/// Names with their values.
pub fn pairs<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    columns(&[Side::Left; 2], &rows.collect::<Vec<_>>())
}

/// A whole number with a comma between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A bar of at most `width` characters, in eighths.
pub fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
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

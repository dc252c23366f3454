//! The nearest known word to an unknown one, for messages about misspelt keys.
//!
//! This file must not be used to accept anything: a near miss is still an error.

/// The known word with the fewest edits from `word`, if they are few enough to be a slip.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|candidate| (edits(word, candidate), *candidate));
    let (edits, candidate) = scored.min()?;
    // A third of the letters: "recovry" is a slip, "foo" is another word.
    (edits <= (word.len().max(candidate.len()) / 3).max(1)).then_some(candidate)
}

/// Number of edits: letters to insert, remove, change or swap with the next one. `-` and `_` are
/// one letter, and case is ignored.
fn edits(left: &str, right: &str) -> usize {
    let letters = |text: &str| -> Vec<char> {
        text.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
    };
    let (left, right) = (letters(left), letters(right));
    // A row for each beginning of `left`, the last one last.
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let changed = rows[i][j] + usize::from(a != b);
            let mut least = changed.min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && (*a, left[i - 1]) == (right[j - 1], *b) {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["recovery", "retention", "hold", "wait", "max_attempts"];
        for (word, found) in [
            ("recovry", Some("recovery")),
            ("max-attempts", Some("max_attempts")),
            ("Hold", Some("hold")),
            ("retension", Some("retention")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), found, "{word}");
        }
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!((edits("inof", "info"), edits("debgu", "debug"), edits("ab", "ca")), (1, 1, 2));
        assert_eq!(edits("abc", "abc"), 0);
    }
}

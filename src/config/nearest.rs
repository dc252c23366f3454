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
    let letters = |text: &str| text.replace('-', "_").to_ascii_lowercase();
    strsim::osa_distance(&letters(left), &letters(right))
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
            ("watt", Some("wait")),
            ("hlod", Some("hold")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), found, "{word}");
        }
    }
}

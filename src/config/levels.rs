//! Levels of the log: their one reader, for files, for `ONCEWAY_LOG` and for a change while the
//! process runs. `cli::logging` sets logging up.

use tracing_subscriber::EnvFilter;

use super::problems::nearest;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Makes the filter of a text.
///
/// A single word must be a level: the filter would take any other word for a part of the program,
/// and silence the rest. The error is one line that says what to write.
pub fn filter(text: &str) -> Result<EnvFilter, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let mut alone = words.iter().filter(|word| !word.contains(['=', '[']));
    if let Some(word) = alone.find(|word| !is_level(word)) {
        let advice = match nearest(word, &LEVELS) {
            Some(near) => format!("did you mean {near:?}?"),
            None => {
                let advice =
                    "write off, error, warn, info, debug or trace, or a part with its level, such as";
                format!("{advice} \"onceway=debug\"")
            }
        };
        return Err(format!("{word:?} is no level: {advice}"));
    }
    // A blank would become a letter of the part's name.
    EnvFilter::try_new(words.join(","))
        .map_err(|error| format!("{text:?}: {error}; write a level such as \"info\", or \"onceway=debug\""))
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn a_word_alone_is_a_level() {
        for good in
            ["info", "WARN", "off", "info,onceway::gateway=debug", "warn, onceway=trace", "[request]=debug"]
        {
            filter(good).unwrap_or_else(|why| panic!("{good}: {why}"));
        }
        assert_eq!(filter("warn, debug").unwrap().to_string(), filter("warn,debug").unwrap().to_string());
        for (bad, said) in [
            ("inof", "\"inof\" is no level: did you mean \"info\"?"),
            ("info,debgu", "\"debgu\" is no level: did you mean \"debug\"?"),
            ("loud", "\"loud\" is no level: write off, error, warn"),
            ("onceway", "\"onceway\" is no level: write off, error, warn"),
            ("onceway::gateway,info", "such as \"onceway=debug\""),
            ("onceway=loud", "\"onceway=loud\": "),
        ] {
            let error = filter(bad).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}

//! Stored documents of views and of the register's values.
//!
//! `postgres` and the witness's file put them into rows and bytes. `protocol::written` has their
//! spelling; a document in any other is refused, in our own words.

use serde::de::DeserializeOwned;

use crate::protocol::versions::NEXT;

/// Reads a document from its JSON text. Fails if it is not JSON, not this document, or has a part
/// that no value has.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, &'static str> {
    serde_json::from_str(text).map_err(|_| newer(text).unwrap_or(UNLIKE))
}

/// Reads a document from a JSON value. Fails as [`from_text`] does.
pub fn from_value<T: DeserializeOwned>(value: &serde_json::Value) -> Result<T, &'static str> {
    T::deserialize(value).map_err(|_| newer(&value.to_string()).unwrap_or(UNLIKE))
}

const UNLIKE: &str = "not such a document";
/// Advice for a document of a newer program, which is refused whole. An agreed and stored value
/// would become another value if unknown members were ignored.
const NEWER: &str =
    "it is of a newer protocol version than this program speaks: run the newer onceway here, too";

/// The advice for a text that cannot be read, if it names a newer version than this program has.
pub(super) fn newer(text: &str) -> Option<&'static str> {
    // The view may be at any place. An unknown member asks whether the program is too old.
    let said = text.match_indices("\"protocol\":").filter_map(|(at, name)| {
        let digits = text[at + name.len()..].split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    });
    said.max().filter(|version| *version > u64::from(NEXT)).map(|_| NEWER)
}

#[cfg(test)]
pub(super) mod tests;

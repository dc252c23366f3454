//! `[accept]` of a region file: the key that seals stored requests.
//!
//! `secret` reads the sources. Messages must not repeat the key.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::reader::Section;
use super::secret::{Names, Secret, SecretSource, Surroundings};

const KEY: Names = Names {
    written: "key",
    variable: "key_env",
    file: "key_file",
    holds: "32 bytes as base64 (`openssl rand -base64 32`)",
};

/// Reads the key that seals stored requests. `Some(None)` if none is written, `None` after an
/// error.
pub(super) fn key(top: &Section<'_>, base: &Path, surroundings: &Surroundings<'_>) -> Option<Option<Secret>> {
    let Some(section) = top.table("accept") else { return Some(None) };
    let source = SecretSource::read(&section, &KEY, base, None);
    let key = source.and_then(|source| source.needed_to_serve(&section, &KEY, surroundings, seal_key));
    section.finish();
    key.map(Some)
}

/// Checks the key. The message does not repeat it, as it is a secret.
fn seal_key(text: &str) -> Result<(), String> {
    match STANDARD.decode(text) {
        Ok(bytes) if bytes.len() == 32 => Ok(()),
        Ok(_) | Err(_) => {
            Err("must hold 32 bytes as base64: `openssl rand -base64 32` makes such a key".to_owned())
        }
    }
}

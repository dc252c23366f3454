//! `[admin]` and `[accept]`: the token that the admin listener requires, and the key that seals
//! stored requests.
//!
//! `region` and `witness` read the rest of their files; `secret` reads the sources. Messages must
//! not repeat a secret.

use std::net::SocketAddr;
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
const TOKEN: Names =
    Names { written: "token", variable: "token_env", file: "token_file", holds: "the token" };

/// Reads the key that seals stored requests. `Some(None)` if none is written, `None` after an
/// error.
pub(super) fn accept_key(
    top: &Section<'_>,
    base: &Path,
    surroundings: &Surroundings<'_>,
) -> Option<Option<Secret>> {
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

/// Reads the admin token. `Some(None)` if none is needed, `None` after an error.
pub(super) fn admin(
    top: &Section<'_>,
    base: &Path,
    address: Option<SocketAddr>,
    surroundings: &Surroundings<'_>,
) -> Option<Option<Secret>> {
    let source = top.table("admin").map(|section| {
        let source = SecretSource::read_if_there(&section, &TOKEN, base, None);
        let named = section.has(TOKEN.variable) || section.has(TOKEN.file);
        let token = source.and_then(|source| source.needed(&section, &TOKEN, surroundings, token));
        section.finish();
        (named, token)
    });
    match (source, address) {
        (Some((true, token)), _) => token.map(Some),
        (Some((false, _)) | None, Some(address)) if address.ip().is_loopback() => Some(None),
        (Some((false, _)) | None, Some(address)) => {
            top.fail_at(
                "listen",
                format!(
                    "the admin listener on {address} is open to other machines: name a file with a token ([admin] token_file), \
                     or listen on 127.0.0.1"
                ),
            );
            None
        }
        (Some((false, _)) | None, None) => None,
    }
}

/// Checks the token. The message does not repeat it, as it is a secret.
fn token(text: &str) -> Result<(), String> {
    if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must hold one token of 16 or more visible ASCII characters, such as `openssl rand -hex 32` prints".to_owned());
    }
    Ok(())
}

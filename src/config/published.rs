//! Public values of the reference files in `config/`: their seed, their tokens and their issuer's
//! keys.
//!
//! Anybody can send requests to a gateway that uses these credentials. With a known seed, a client
//! can choose keys that all fall into one arc. `ring`, `credentials` and `jwks` warn; only a check
//! shows the warning, so a trial with these files runs. This file must not repeat a value.

use crate::gateway::credentials::TokenDigest;

const RING: &str = include_str!("../../config/ring.toml");
const CREDENTIALS: &str = include_str!("../../config/credentials.toml");
const OPERATORS: &str = include_str!("../../config/operators.toml");
const KEYS: &str = include_str!("../../config/accounts.jwks.json");

/// Advice about a seed.
pub(super) const SEED: &str = "this is the seed of the reference file, which everybody knows: draw your own (0x and what `openssl rand -hex 8` prints) before `onceway init`; it can never be changed afterwards";
/// Advice about a token.
pub(super) const TOKEN: &str =
    "this token is one of the reference file's, which everybody knows: list digests of your own tokens only";
/// Advice about a key.
pub(super) const KEY: &str = "is a key of the reference file, whose tokens would be believed whatever tenant they name: take your issuer's";

/// True if the seed is that of the reference file.
pub(super) fn seed(seed: u64) -> bool {
    RING.contains(&format!("\nseed = {seed:#x}\n"))
}

/// True if the token is one of the reference file's.
pub(super) fn token(digest: &TokenDigest) -> bool {
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    [CREDENTIALS, OPERATORS].iter().any(|file| file.contains(&digits))
}

/// True if the key is one of the reference file's, by its coordinate.
pub(super) fn key(key: &serde_json::Value) -> bool {
    key.get("x")
        .and_then(serde_json::Value::as_str)
        .is_some_and(|x| KEYS.contains(&format!("\"x\": \"{x}\"")))
}

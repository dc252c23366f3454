//! Paths that a gateway answers itself, whatever its routes.
//!
//! They stand on the floor, since answers name them. This file must not know of requests.

use crate::gateway::operator::percent;
use crate::protocol::key::Key;

/// Path of the contract for clients.
pub const PUBLICATION: &str = "/.well-known/idempotency";
/// Path of the state of keys; the key follows, percent-encoded.
pub const KEYS: &str = "/.well-known/onceway/requests/";

/// The address of a key's state.
pub fn of(key: &Key) -> String {
    format!("{KEYS}{}", percent::encode(key.as_str()))
}

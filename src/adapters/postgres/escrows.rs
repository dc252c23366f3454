//! The port `Escrows`: claims of other regions that were lodged here.
//!
//! Neighbours: `statements` has the SQL, `run` bounds. It must not judge whether an escrow proves anything.

use super::PgStore;
use crate::ports::Escrows;
use crate::ports::authority::{Lodged, Lodging};
use crate::ports::store::{GateVersion, StoreError, Written};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, Nonce, Token};
use crate::protocol::region::Origin;

fn unbuilt<T>() -> Result<T, StoreError> {
    Err(StoreError::Definite("not built yet".to_owned()))
}

impl Escrows for PgStore {
    async fn lodge(&self, _lodging: &Lodging, _gate: GateVersion) -> Result<Lodged, StoreError> {
        unbuilt()
    }

    async fn void(
        &self,
        _id: &KeyId,
        _origin: &Origin,
        _token: Token,
        _nonce: Nonce,
    ) -> Result<(), StoreError> {
        unbuilt()
    }

    async fn lodge_answer(
        &self,
        _id: &KeyId,
        _origin: &Origin,
        _token: Token,
        _nonce: Nonce,
        _answer: &Answer,
    ) -> Result<Written, StoreError> {
        unbuilt()
    }

    async fn convert(&self, _origin: &Origin, _most: u32) -> Result<u64, StoreError> {
        unbuilt()
    }

    async fn reap_escrows(&self, _most: u32) -> Result<u64, StoreError> {
        unbuilt()
    }
}

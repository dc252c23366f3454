//! The ports `Authority`, `Escrows` and `Imports`: the gate's state, views, the acceptor, escrow rows and imported rows.
//!
//! Neighbours: `statements` has the SQL, `run` bounds, `super::super::views` spells views. It must not judge anything.

use std::sync::Arc;
use std::time::Duration;

use super::PgStore;
use crate::ports::authority::{CopiedRow, Lodged, Lodging};
use crate::ports::store::{GateVersion, StoreError, Written};
use crate::ports::{Acceptors, Authority, Escrows, Imports};
use crate::protocol::authority::GateState;
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, Nonce, Token};
use crate::protocol::region::Origin;
use crate::protocol::register::Acceptor;
use crate::protocol::view::View;

fn unbuilt<T>() -> Result<T, StoreError> {
    Err(StoreError::Definite("not built yet".to_owned()))
}

impl Acceptors for PgStore {
    async fn acceptor(&self) -> Result<(u64, Acceptor), StoreError> {
        unbuilt()
    }

    async fn set_acceptor(&self, _version: u64, _acceptor: &Acceptor) -> Result<Written, StoreError> {
        unbuilt()
    }
}

impl Authority for PgStore {
    async fn set_gate(&self, _version: GateVersion, _state: &GateState) -> Result<Written, StoreError> {
        unbuilt()
    }

    async fn keep_views(&self, _views: &[Arc<View>]) -> Result<(), StoreError> {
        unbuilt()
    }

    async fn views(&self) -> Result<Vec<(Arc<View>, Duration)>, StoreError> {
        unbuilt()
    }
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

impl Imports for PgStore {
    async fn rows_of(
        &self,
        _origin: &Origin,
        _after: Option<&KeyId>,
        _most: u32,
    ) -> Result<Vec<CopiedRow>, StoreError> {
        unbuilt()
    }

    async fn import(&self, _origin: &Origin, _rows: &[CopiedRow]) -> Result<(), StoreError> {
        unbuilt()
    }
}

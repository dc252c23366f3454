//! The port `Imports`: rows of other origins that survivors hand to one another.
//!
//! Neighbours: `statements` has the SQL, `run` bounds. It must not write where replication does.

use super::PgStore;
use crate::ports::Imports;
use crate::ports::authority::CopiedRow;
use crate::ports::store::StoreError;
use crate::protocol::key::KeyId;
use crate::protocol::region::Origin;

fn unbuilt<T>() -> Result<T, StoreError> {
    Err(StoreError::Definite("not built yet".to_owned()))
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

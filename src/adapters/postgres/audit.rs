//! The port `Audit`: runs at risk, and the doubles among them.
//!
//! Neighbours: `statements` has the SQL, `run` bounds; `keys` journals the doubles that a settlement meets. It must not decide which answer
//! of a double is served.

use super::PgStore;
use super::errors::{self, Effect};
use super::rows::{self, get};
use super::run::Call;
use super::upkeep::key_id;
use crate::ports::Audit;
use crate::ports::audit::{Double, RunAtRisk};
use crate::ports::store::StoreError;
use crate::protocol::key::KeyId;

impl Audit for PgStore {
    async fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<RunAtRisk>, StoreError> {
        const WHAT: &str = "listing runs at risk";
        let call = Call { what: WHAT, effect: Effect::Reads, sql: &self.sql.runs_at_risk };
        let (tenant, key) = (after.map(|id| id.tenant().as_str()), after.map(|id| id.key().as_bytes()));
        let found = self.on_upkeep(call, &[&tenant, &key, &i64::from(most)]).await?;
        let read = |row: &tokio_postgres::Row| {
            let (route, path) = (get::<&str>(row, "route")?.into(), get(row, "path")?);
            Ok(RunAtRisk { id: key_id(row)?, row: rows::read(row)?, route, path })
        };
        found
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|why| errors::unreadable(WHAT, Effect::Reads, why))
    }

    async fn audit(&self, most: u32) -> Result<Vec<Double>, StoreError> {
        const WHAT: &str = "looking for keys that ran twice";
        let call = Call { what: WHAT, effect: Effect::Writes, sql: &self.sql.audit };
        let found = self.on_upkeep(call, &[&i64::from(most)]).await?;
        // Two rows each, the own one first.
        let read = |pair: &[tokio_postgres::Row]| {
            let [own, other] = pair else { return Err("rows") };
            Ok(Double { id: key_id(own)?, own: rows::read(own)?, other: rows::read(other)? })
        };
        found
            .chunks(2)
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|why| errors::unreadable(WHAT, Effect::Writes, why))
    }
}

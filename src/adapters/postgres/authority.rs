//! The ports `Acceptors` and `Authority`: the acceptor, the gate's state and the chosen views.
//!
//! Calls use the control connections, so no load of keys delays a renewal. `super::super::views`
//! writes views as documents. This file must not judge anything.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Json;
use uuid::Uuid;

use super::super::views::{AcceptorDoc, GateDoc, Malformed, Spelled, ViewDoc};
use super::errors::{self, Effect};
use super::keys::big;
use super::run::Call;
use super::{Lane, PgStore, rows, statements};
use crate::ports::store::{GateVersion, StoreError, Written};
use crate::ports::{Acceptors, Authority};
use crate::protocol::authority::GateState;
use crate::protocol::register::Acceptor;
use crate::protocol::view::{AcceptorId, View};

impl Acceptors for PgStore {
    async fn acceptor(&self) -> Result<(u64, Acceptor), StoreError> {
        const WHAT: &str = "reading the acceptor";
        let call = Call { what: WHAT, effect: Effect::Reads, sql: statements::ACCEPTOR };
        let found = self.on(Lane::Control, call, &[]).await?;
        let [row] = found.as_slice() else {
            return Err(errors::not_sent(WHAT, "the store has no acceptor: run `onceway store init`"));
        };
        read_acceptor(row).map_err(|why| errors::unreadable(WHAT, Effect::Reads, why))
    }

    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        const WHAT: &str = "writing the acceptor";
        let call = Call { what: WHAT, effect: Effect::Writes, sql: statements::SET_ACCEPTOR };
        let (version, id) = (big(WHAT, version)?, Uuid::from_u128(acceptor.id.0));
        let changed = self.on(Lane::Control, call, &[&version, &Json(acceptor.doc()), &id]).await?;
        if !changed.is_empty() {
            return Ok(Written::Done);
        }
        self.not_written(WHAT).await
    }
}

impl Authority for PgStore {
    async fn set_gate(&self, version: GateVersion, state: &GateState) -> Result<Written, StoreError> {
        const WHAT: &str = "writing the gate";
        let call = Call { what: WHAT, effect: Effect::Writes, sql: &self.sql.set_gate };
        let (version, epoch) = (big(WHAT, version.0)?, big(WHAT, state.view.epoch())?);
        let GateDoc { view, since, pending, waived } = state.doc();
        let (view, since, pending, waived) = (Json(view), Json(since), pending.map(Json), Json(waived));
        let changed =
            self.on(Lane::Control, call, &[&version, &epoch, &view, &since, &pending, &waived]).await?;
        if !changed.is_empty() {
            return Ok(Written::Done);
        }
        self.not_written(WHAT).await
    }

    async fn keep_views(&self, views: &[Arc<View>]) -> Result<(), StoreError> {
        const WHAT: &str = "keeping views";
        if views.is_empty() {
            return Ok(());
        }
        let epochs = views.iter().map(|view| big(WHAT, view.epoch())).collect::<Result<Vec<i64>, _>>()?;
        let docs: Vec<Json<ViewDoc>> = views.iter().map(|view| Json(view.doc())).collect();
        let call = Call { what: WHAT, effect: Effect::Writes, sql: statements::KEEP_VIEWS };
        self.on(Lane::Control, call, &[&epochs, &docs]).await.map(|_| ())
    }

    async fn views(&self) -> Result<Vec<(Arc<View>, Duration)>, StoreError> {
        const WHAT: &str = "reading the views";
        let call = Call { what: WHAT, effect: Effect::Reads, sql: statements::VIEWS };
        let found = self.on(Lane::Control, call, &[]).await?;
        found
            .iter()
            .map(read_view)
            .collect::<Result<_, _>>()
            .map_err(|why| errors::unreadable(WHAT, Effect::Reads, why))
    }
}

impl PgStore {
    /// Asks in a second statement why a compare-and-set changed nothing.
    async fn not_written(&self, what: &'static str) -> Result<Written, StoreError> {
        let call = Call { what, effect: Effect::Reads, sql: statements::GATE_OPEN };
        let found = self.on(Lane::Control, call, &[]).await?;
        let open = found.first().ok_or("no row").and_then(|row| rows::get::<bool>(row, "open"));
        let open = open.map_err(|why| errors::unreadable(what, Effect::Reads, why))?;
        Ok(if open { Written::Lost } else { Written::GateMoved })
    }
}

fn read_acceptor(row: &tokio_postgres::Row) -> Result<(u64, Acceptor), rows::Unreadable> {
    let version = u64::try_from(rows::get::<i64>(row, "version")?).map_err(|_| "version")?;
    let id = AcceptorId(rows::get::<Uuid>(row, "id")?.as_u128());
    let acceptor = match rows::get::<Option<Json<AcceptorDoc>>>(row, "state")? {
        None => Acceptor::made(id),
        Some(Json(doc)) => Acceptor::from_doc(doc).map_err(|Malformed(what)| what)?,
    };
    if acceptor.id == id { Ok((version, acceptor)) } else { Err("the acceptor's id") }
}

fn read_view(row: &tokio_postgres::Row) -> Result<(Arc<View>, Duration), rows::Unreadable> {
    let Json(doc) = rows::get::<Json<ViewDoc>>(row, "view")?;
    let view: Arc<View> = Spelled::from_doc(doc).map_err(|Malformed(what)| what)?;
    if u64::try_from(rows::get::<i64>(row, "epoch")?).ok() != Some(view.epoch()) {
        return Err("the view's epoch");
    }
    Ok((view, rows::millis(rows::get(row, "stored_ms")?)?))
}

//! The ports `Acceptors` and `Authority`: the acceptor, the gate's state and the chosen views.
//!
//! Calls use the control connections, so no load of keys delays a renewal. `super::super::views`
//! writes views as documents. This file must not judge anything.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Json;
use uuid::Uuid;

use super::errors;
use super::numbers::big;
use super::run::{Call, Params};
use super::{Lane, PgStore, rows};
use crate::ports::store::{GateVersion, StoreError, Written};
use crate::ports::{Acceptors, Authority};
use crate::protocol::authority::GateState;
use crate::protocol::register::Acceptor;
use crate::protocol::view::{AcceptorId, View};

impl Acceptors for PgStore {
    async fn acceptor(&self) -> Result<(u64, Acceptor), StoreError> {
        const WHAT: &str = "reading the acceptor";
        let call = Call::reads(WHAT, &self.sql.acceptor);
        let found = self.on(Lane::Control, call, &[]).await?;
        let [row] = found.as_slice() else {
            return Err(errors::not_sent(WHAT, "the store has no acceptor: run `onceway store init`"));
        };
        read_acceptor(row).map_err(|why| call.unreadable(why))
    }

    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        const WHAT: &str = "writing the acceptor";
        let call = Call::writes(WHAT, &self.sql.set_acceptor);
        let (version, id) = (big(WHAT, version)?, Uuid::from_u128(acceptor.id.0));
        let written = self.write(Lane::Control, call, &[&version, &Json(acceptor), &id]).await?;
        self.if_lost(WHAT, written).await
    }
}

impl Authority for PgStore {
    async fn set_gate(&self, version: GateVersion, state: &GateState) -> Result<Written, StoreError> {
        const WHAT: &str = "writing the gate";
        let call = Call::writes(WHAT, &self.sql.set_gate);
        let (version, epoch) = (big(WHAT, version.0)?, big(WHAT, state.view.epoch())?);
        let GateState { view, since, pending, waived } = state;
        let (view, since, waived) = (Json(view), Json(since), Json(waived));
        let pending = pending.as_ref().map(Json);
        let params: Params<'_> = &[&version, &epoch, &view, &since, &pending, &waived];
        let written = self.write(Lane::Control, call, params).await?;
        self.if_lost(WHAT, written).await
    }

    async fn keep_views(&self, views: &[Arc<View>]) -> Result<(), StoreError> {
        const WHAT: &str = "keeping views";
        if views.is_empty() {
            return Ok(());
        }
        let epochs = views.iter().map(|view| big(WHAT, view.epoch())).collect::<Result<Vec<i64>, _>>()?;
        let docs: Vec<Json<&Arc<View>>> = views.iter().map(Json).collect();
        let call = Call::writes(WHAT, &self.sql.keep_views);
        self.on(Lane::Control, call, &[&epochs, &docs]).await.map(|_| ())
    }

    async fn views(&self) -> Result<Vec<(Arc<View>, Duration)>, StoreError> {
        self.list(Lane::Control, Call::reads("reading the views", &self.sql.views), &[], read_view).await
    }
}

impl PgStore {
    /// Asks for the reason if a compare-and-set changed nothing.
    async fn if_lost(&self, what: &'static str, written: Written) -> Result<Written, StoreError> {
        if written == Written::Done {
            return Ok(written);
        }
        self.explain_loss(Lane::Control, Call::reads(what, &self.sql.gate_open), &[]).await
    }
}

fn read_acceptor(row: &tokio_postgres::Row) -> Result<(u64, Acceptor), rows::Unreadable> {
    let version = rows::count(row, "version")?;
    let id = AcceptorId(rows::get::<Uuid>(row, "id")?.as_u128());
    let acceptor = match rows::get::<Option<Json<Acceptor>>>(row, "state")? {
        None => Acceptor::made(id),
        Some(Json(acceptor)) => acceptor,
    };
    if acceptor.id == id { Ok((version, acceptor)) } else { Err("the acceptor's id") }
}

fn read_view(row: &tokio_postgres::Row) -> Result<(Arc<View>, Duration), rows::Unreadable> {
    let Json(view) = rows::get::<Json<Arc<View>>>(row, "view")?;
    if u64::try_from(rows::get::<i64>(row, "epoch")?).ok() != Some(view.epoch()) {
        return Err("the view's epoch");
    }
    Ok((view, rows::millis(rows::get(row, "stored_ms")?)?))
}

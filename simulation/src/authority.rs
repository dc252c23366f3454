//! The ports `Authority`, `Escrows`, `Imports` and `Audit` of a simulated store.
//!
//! Each call becomes one statement, which [`crate::table`] executes.

use std::sync::Arc;
use std::time::Duration;

use crate::points::Point;
use crate::store::{Effect, SimStore, statements, writes};
use onceway::ports::audit::{Begin, Counted, Double, Finding, History, HistoryRow, Of, RunAtRisk, Stretch};
use onceway::ports::authority::{CopiedRow, Latest, Lodged, Lodging};
use onceway::ports::store::{Attempt, GateVersion, StoreError, Written};
use onceway::ports::upkeep::Place;
use onceway::ports::{Acceptors, Audit, Authority, Escrows, Imports};
use onceway::protocol::authority::GateState;
use onceway::protocol::double::Trace;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{Answer, Nonce, RequestId, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::register::Acceptor;
use onceway::protocol::view::View;

impl Acceptors for SimStore {
    statements! {
        reads acceptor() -> (u64, Acceptor);
        writes(Effect::At(Point::Acceptor), [acceptor])
            set_acceptor(version: u64, acceptor: &Acceptor) -> Written;
    }
}

impl Authority for SimStore {
    statements! {
        reads views() -> Vec<(Arc<View>, Duration)>;
        writes(Effect::At(Point::Gate), [state]) set_gate(version: GateVersion, state: &GateState) -> Written;
        writes(Effect::At(Point::Views), [views]) keep_views(views: &[Arc<View>]) -> ();
    }
}

impl Escrows for SimStore {
    async fn convert(&self, origin: &Origin, most: u32) -> Result<u64, StoreError> {
        let converted =
            writes!(self, Effect::At(Point::Convert), [origin], |table| table.convert(origin, most)).await?;
        converted.ok_or_else(unapproved)
    }

    statements! {
        writes(Effect::Writes, [lodging])
            lodge(lodging: &Lodging, gate: GateVersion) -> Lodged;
        writes(Effect::At(Point::Void), [id, origin])
            void(id: &KeyId, origin: &Origin, token: Token, nonce: Nonce) -> ();
        writes(Effect::At(Point::Void), [id, origin, answer])
            lodge_answer(id: &KeyId, origin: &Origin, token: Token, nonce: Nonce, answer: &Answer) -> Written;
        writes(Effect::At(Point::Reap), []) reap_escrows(most: u32) -> u64;
    }
}

impl Imports for SimStore {
    async fn import(&self, origin: &Origin, rows: &[CopiedRow]) -> Result<(), StoreError> {
        if *origin == self.call(|table| table.origin().clone()).await? {
            return Err(StoreError::Definite("the own rows are written by claims only".to_owned()));
        }
        let imported = writes!(self, Effect::At(Point::Import), [origin, rows], |table| table
            .import(origin, rows))
        .await?;
        imported.ok_or_else(unapproved)
    }

    async fn restore(&self, rows: &[CopiedRow]) -> Result<Written, StoreError> {
        let origin = self.call(|table| table.origin().clone()).await?;
        if rows.iter().any(|copied| copied.row.origin != origin) {
            return Err(StoreError::Definite("a row is of another origin".to_owned()));
        }
        writes!(self, Effect::At(Point::Import), [rows], |table| table.restore(rows)).await
    }

    statements! {
        reads rows_of(origin: &Origin, after: Option<&KeyId>, most: u32) -> Vec<CopiedRow>;
        reads latest_of(origin: &Origin, from: u64, most: u32) -> Latest;
        writes(Effect::At(Point::Reap), []) reap_imports(most: u32) -> u64;
    }
}

fn unapproved() -> StoreError {
    StoreError::Definite("the running boot is not approved".to_owned())
}

impl Audit for SimStore {
    async fn traces(&self, ids: &[KeyId]) -> Result<Vec<Vec<Trace>>, StoreError> {
        self.call(|table| ids.iter().map(|id| table.traces(id)).collect()).await
    }

    statements! {
        reads runs_at_risk(after: Option<&KeyId>, most: u32) -> Vec<RunAtRisk>;
        reads stretch(of: Of, after: Option<&KeyId>, most: u32) -> Stretch;
        reads doubles() -> Counted;
        reads rows_of_key(id: &KeyId) -> Vec<HistoryRow>;
        reads findings(after: Option<Place>, back: Duration, most: u32) -> Vec<Finding>;
        reads histories(begin: Begin<'_>, most: u32) -> Vec<History>;
        writes(Effect::At(Point::Journal), [found]) journal_doubles(found: &[Double]) -> Vec<bool>;
        writes(Effect::At(Point::Journal), [attempt, answer])
            late(attempt: &Attempt, request_id: Option<RequestId>, answer: &Answer) -> bool;
    }
}

//! The ports `Authority`, `Escrows`, `Imports` and `Audit` of a simulated store.
//!
//! Each call becomes one statement, which [`crate::table`] executes. It must not judge anything.

use std::sync::Arc;
use std::time::Duration;

use crate::points::Point;
use crate::store::{Effect, SimStore, writes};
use onceway::ports::audit::{Counted, Double, Finding, History, Of, RunAtRisk, Stretch};
use onceway::ports::authority::{CopiedRow, Lodged, Lodging};
use onceway::ports::store::{Attempt, GateVersion, StoreError, Written};
use onceway::ports::upkeep::Place;
use onceway::ports::{Acceptors, Audit, Authority, Escrows, Imports};
use onceway::protocol::authority::GateState;
use onceway::protocol::double::Trace;
use onceway::protocol::forget::MayForget;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{Answer, Nonce, RequestId, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::register::Acceptor;
use onceway::protocol::time::Date;
use onceway::protocol::view::View;

impl Acceptors for SimStore {
    async fn acceptor(&self) -> Result<(u64, Acceptor), StoreError> {
        self.call(|table| table.acceptor()).await
    }

    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Acceptor), [acceptor], |table| table.set_acceptor(version, acceptor))
            .await
    }
}

impl Authority for SimStore {
    async fn set_gate(&self, version: GateVersion, state: &GateState) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Gate), [state], |table| table.set_gate(version, state)).await
    }

    async fn keep_views(&self, views: &[Arc<View>]) -> Result<(), StoreError> {
        writes!(self, Effect::At(Point::Views), [views], |table| table.keep_views(views)).await
    }

    async fn views(&self) -> Result<Vec<(Arc<View>, Duration)>, StoreError> {
        self.call(|table| table.views()).await
    }
}

impl Escrows for SimStore {
    async fn lodge(
        &self,
        lodging: &Lodging,
        gate: GateVersion,
        not_before: Date,
    ) -> Result<Lodged, StoreError> {
        writes!(self, Effect::Writes, [lodging], |table| table.lodge(lodging, gate, not_before)).await
    }

    async fn void(&self, id: &KeyId, origin: &Origin, token: Token, nonce: Nonce) -> Result<(), StoreError> {
        writes!(self, Effect::At(Point::Void), [id, origin], |table| table.void(id, origin, token, nonce))
            .await
    }

    async fn lodge_answer(
        &self,
        id: &KeyId,
        origin: &Origin,
        token: Token,
        nonce: Nonce,
        answer: &Answer,
    ) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Void), [id, origin, answer], |table| table
            .lodge_answer(id, origin, token, nonce, answer))
        .await
    }

    async fn convert(&self, origin: &Origin, most: u32) -> Result<u64, StoreError> {
        let converted =
            writes!(self, Effect::At(Point::Convert), [origin], |table| table.convert(origin, most)).await?;
        converted.ok_or_else(unapproved)
    }

    async fn reap_escrows(&self, may: MayForget, most: u32) -> Result<u64, StoreError> {
        writes!(self, Effect::At(Point::Reap), [], |table| table.reap_escrows(may, most)).await
    }
}

impl Imports for SimStore {
    async fn rows_of(
        &self,
        origin: &Origin,
        after: Option<&KeyId>,
        most: u32,
    ) -> Result<Vec<CopiedRow>, StoreError> {
        self.call(|table| table.rows_of(origin, after, most)).await
    }

    async fn import(&self, origin: &Origin, rows: &[CopiedRow], not_before: Date) -> Result<(), StoreError> {
        if *origin == self.call(|table| table.origin().clone()).await? {
            return Err(StoreError::Definite("the own rows are written by claims only".to_owned()));
        }
        let imported = writes!(self, Effect::At(Point::Import), [origin, rows], |table| table
            .import(origin, rows, not_before))
        .await?;
        imported.ok_or_else(unapproved)
    }

    async fn reap_imports(&self, may: MayForget, most: u32) -> Result<u64, StoreError> {
        writes!(self, Effect::At(Point::Reap), [], |table| table.reap_imports(may, most)).await
    }
}

fn unapproved() -> StoreError {
    StoreError::Definite("the running boot is not approved".to_owned())
}

impl Audit for SimStore {
    async fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<RunAtRisk>, StoreError> {
        self.call(|table| table.runs_at_risk(after, most)).await
    }

    async fn stretch(&self, of: Of, after: Option<&KeyId>, most: u32) -> Result<Stretch, StoreError> {
        self.call(|table| table.stretch(of, after, most)).await
    }

    async fn traces(&self, ids: &[KeyId]) -> Result<Vec<Vec<Trace>>, StoreError> {
        self.call(|table| ids.iter().map(|id| table.traces(id)).collect()).await
    }

    async fn journal_doubles(&self, found: &[Double]) -> Result<Vec<bool>, StoreError> {
        writes!(self, Effect::At(Point::Journal), [found], |table| table.journal_doubles(found)).await
    }

    async fn doubles(&self) -> Result<Counted, StoreError> {
        self.call(|table| table.doubles()).await
    }

    async fn late(
        &self,
        attempt: &Attempt,
        request_id: RequestId,
        answer: &Answer,
    ) -> Result<bool, StoreError> {
        writes!(self, Effect::At(Point::Journal), [attempt, answer], |table| table
            .late(attempt, request_id, answer))
        .await
    }

    async fn findings(
        &self,
        after: Option<Place>,
        back: Duration,
        most: u32,
    ) -> Result<Vec<Finding>, StoreError> {
        self.call(|table| table.findings(after, back, most)).await
    }

    async fn histories(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<History>, StoreError> {
        self.call(|table| table.histories(after, most)).await
    }
}

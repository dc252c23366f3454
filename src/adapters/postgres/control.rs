//! The ports `Replica`, `Acceptors` and `Authority`: heartbeats, the memory of peers, incoming
//! replication, the acceptor, the gate's state and the chosen views.
//!
//! Calls use the control connections, so no load of keys delays a heartbeat or a renewal.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::errors::Called;
use super::params::{Params, big, borrowed, checked, column, millis};
use super::rows::{self, count, get};
use super::run::Call;
use super::{Lane, PgStore, names};
use crate::ports::store::{Beat, GateVersion, Heartbeat, PeerMemory, Slot, Subscription, Written};
use crate::ports::{Acceptors, Authority, Replica};
use crate::protocol::authority::GateState;
use crate::protocol::observed::{Observed, Passed};
use crate::protocol::region::Origin;
use crate::protocol::register::Acceptor;
use crate::protocol::time::Date;
use crate::protocol::view::{AcceptorId, View};

impl Replica for PgStore {
    async fn beat(&self, passed: Option<Passed>) -> Called<Option<Beat>> {
        let call = Call::writes("a heartbeat", &self.sql.beat);
        let from = passed.and_then(|passed| passed.from);
        let from = from.map(|Observed(ms)| big(call.what, ms)).transpose()?;
        let (by, step) = passed.map(|passed| (millis(passed.by), millis(passed.step))).unzip();
        let params: Params<'_> = &[&from, &by, &step];
        let beat = self.list(Lane::Control, call, params, |row| {
            let observed = Observed(count(row, "observed_ms")?);
            let (date, counted) = (Date(get(row, "beat_ms")?), get(row, "counted")?);
            Ok(Beat { seq: count(row, "seq")?, date, observed, counted })
        });
        Ok(beat.await?.pop())
    }

    async fn heartbeats(&self) -> Called<Vec<Heartbeat>> {
        self.list(Lane::Control, Call::reads("reading the heartbeats", &self.sql.heartbeats), &[], |row| {
            let (origin, seq, epoch) = (origin(row)?, count(row, "seq")?, count(row, "epoch")?);
            let copied: Vec<&str> = get(row, "copied")?;
            let subscription = names::subscription(&self.origin.region, &origin.region);
            let whole = origin == self.origin || copied.contains(&subscription.as_str());
            Ok(Heartbeat { origin, seq, epoch, whole, date: Date(get(row, "beat_ms")?) })
        })
        .await
    }

    async fn remember(&self, memory: &[PeerMemory]) -> Called<()> {
        if memory.is_empty() {
            return Ok(());
        }
        let call = Call::writes("remembering the peers", &self.sql.remember);
        let number = |number: u64| {
            i64::try_from(number).map_err(|_| call.not_sent("a heartbeat's number is too large to be stored"))
        };
        let params = [
            column(memory, |peer| peer.origin.to_string()),
            checked(memory, |peer| number(peer.applied))?,
            // A lag beyond the range means the same as the largest that fits.
            column(memory, |peer| peer.lag.map(millis)),
            checked(memory, |peer| number(peer.imported))?,
        ];
        self.on(Lane::Control, call, &borrowed(&params)).await.map(drop)
    }

    async fn recall(&self) -> Called<Vec<PeerMemory>> {
        self.list(Lane::Control, Call::reads("recalling the peers", &self.sql.recall), &[], |row| {
            Ok(PeerMemory {
                origin: origin(row)?,
                applied: count(row, "applied")?,
                lag: get::<Option<i64>>(row, "lag_ms")?.map(rows::millis).transpose()?,
                imported: count(row, "imported")?,
            })
        })
        .await
    }

    async fn subscriptions(&self) -> Called<Vec<Subscription>> {
        let prefix = names::subscription_prefix(&self.origin.region);
        let call = Call::reads("reading the subscriptions", &self.sql.subscriptions);
        // Operators may ask often: not over the connections of the heartbeats.
        let found = self.list(Lane::Admin, call, &[], |row| {
            let name: &str = get(row, "name")?;
            // A subscription of another application in the same database does not count.
            let Some(from) = name.strip_prefix(&prefix).and_then(names::region) else { return Ok(None) };
            let (ready, streaming) = (get(row, "ready")?, get(row, "streaming")?);
            Ok(Some(Subscription { from: from.to_string(), ready, streaming }))
        });
        Ok(found.await?.into_iter().flatten().collect())
    }

    async fn slots(&self) -> Called<Vec<Slot>> {
        self.list(Lane::Control, Call::reads("reading the replication slots", &self.sql.slots), &[], |row| {
            let name: &str = get(row, "name")?;
            let (retained, lost) = (count(row, "retained")?, get(row, "lost")?);
            Ok(Slot { name: name.to_owned(), retained, lost })
        })
        .await
    }
}

fn origin(row: &Row) -> Result<Origin, rows::Unreadable> {
    Origin::parse(get(row, "origin")?).map_err(|_| "origin")
}

impl Acceptors for PgStore {
    async fn acceptor(&self) -> Called<(u64, Acceptor)> {
        let call = Call::reads("reading the acceptor", &self.sql.acceptor);
        let found = self.on(Lane::Control, call, &[]).await?;
        let [row] = found.as_slice() else {
            return Err(call.not_sent("the store has no acceptor: run `onceway store init`"));
        };
        read_acceptor(row).map_err(|why| call.unreadable(why))
    }

    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Called<Written> {
        let call = Call::writes("writing the acceptor", &self.sql.set_acceptor);
        let (version, id) = (big(call.what, version)?, Uuid::from_u128(acceptor.id.0));
        self.compare_and_set(call, &[&version, &Json(acceptor), &id]).await
    }
}

impl Authority for PgStore {
    async fn set_gate(&self, version: GateVersion, state: &GateState) -> Called<Written> {
        let call = Call::writes("writing the gate", &self.sql.set_gate);
        let (version, epoch) = (big(call.what, version.0)?, big(call.what, state.view.epoch())?);
        let GateState { view, since, pending, waived } = state;
        let pending = pending.as_ref().map(Json);
        let params: Params<'_> = &[&version, &epoch, &Json(view), &Json(since), &pending, &Json(waived)];
        self.compare_and_set(call, params).await
    }

    async fn keep_views(&self, views: &[Arc<View>]) -> Called<()> {
        if views.is_empty() {
            return Ok(());
        }
        let call = Call::writes("keeping views", &self.sql.keep_views);
        let params = [checked(views, |view| big(call.what, view.epoch()))?, column(views, Json)];
        self.on(Lane::Control, call, &borrowed(&params)).await.map(drop)
    }

    async fn views(&self) -> Called<Vec<(Arc<View>, Duration)>> {
        self.list(Lane::Control, Call::reads("reading the views", &self.sql.views), &[], read_view).await
    }
}

impl PgStore {
    /// Runs a compare-and-set, and asks for the reason if it changed nothing.
    async fn compare_and_set(&self, call: Call<'_>, params: Params<'_>) -> Called<Written> {
        match self.write(Lane::Control, call, params).await? {
            Written::Done => Ok(Written::Done),
            Written::Lost | Written::GateMoved => {
                self.explain_loss(Lane::Control, Call::reads(call.what, &self.sql.gate_open), &[]).await
            }
        }
    }
}

fn read_acceptor(row: &Row) -> Result<(u64, Acceptor), rows::Unreadable> {
    let version = count(row, "version")?;
    let id = AcceptorId(get::<Uuid>(row, "id")?.as_u128());
    let acceptor = match get::<Option<Json<Acceptor>>>(row, "state")? {
        None => Acceptor::made(id),
        Some(Json(acceptor)) => acceptor,
    };
    if acceptor.id == id { Ok((version, acceptor)) } else { Err("the acceptor's id") }
}

fn read_view(row: &Row) -> Result<(Arc<View>, Duration), rows::Unreadable> {
    let Json(view) = get::<Json<Arc<View>>>(row, "view")?;
    if u64::try_from(get::<i64>(row, "epoch")?).ok() != Some(view.epoch()) {
        return Err("the view's epoch");
    }
    Ok((view, rows::millis(get(row, "stored_ms")?)?))
}

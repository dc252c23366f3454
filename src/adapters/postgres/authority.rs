//! The ports `Replica`, `Acceptors`, `Authority`, `Escrows` and `Imports`: replication, the acceptor,
//! the gate's state and the chosen views; claims and rows that regions hand one another.
//!
//! Calls that fence use the control connections, so no load of keys delays a heartbeat or a renewal.
//! Tables that replication writes are left alone, and no escrow is judged here.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{Json, ToSql};
use uuid::Uuid;

use super::errors::Called;
use super::params::{
    self, Named, Param, Params, StoredAnswer, big, borrowed, bytes, checked, column, millis, names, pair,
    small, status,
};
use super::rows::{self, count, get};
use super::run::Call;
use super::{Lane, PgStore, names as tables};
use crate::ports::authority::{CopiedRow, Latest, Lodged, Lodging};
use crate::ports::store::{Attempt, Beat, GateVersion, Heartbeat, PeerMemory, Slot, Subscription, Written};
use crate::ports::{Acceptors, Authority, Escrows, Imports, Replica};
use crate::protocol::authority::GateState;
use crate::protocol::key::KeyId;
use crate::protocol::observed::{Observed, Passed};
use crate::protocol::record::{Answer, State};
use crate::protocol::region::Origin;
use crate::protocol::register::Acceptor;
use crate::protocol::time::Date;
use crate::protocol::view::{AcceptorId, View};

/// Blocks of a table that one call reads: 32 MiB, far less than a statement may take.
const BLOCKS: i64 = 4_096;

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
            let subscription = tables::subscription(&self.origin.region, &origin.region);
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
        let prefix = tables::subscription_prefix(&self.origin.region);
        let call = Call::reads("reading the subscriptions", &self.sql.subscriptions);
        // Operators may ask often: not over the connections of the heartbeats.
        let found = self.list(Lane::Admin, call, &[], |row| {
            let name: &str = get(row, "name")?;
            // A subscription of another application in the same database does not count.
            let Some(from) = name.strip_prefix(&prefix).and_then(tables::region) else { return Ok(None) };
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

impl Escrows for PgStore {
    async fn lodge(&self, lodging: &Lodging, gate: GateVersion) -> Called<Lodged> {
        const WHAT: &str = "lodging a claim";
        let (attempt, origin) = (lodging.attempt(), lodging.origin.to_string());
        let named = Named::of(WHAT, &attempt)?;
        let version = big(WHAT, gate.0)?;
        let named = [&[&version as &(dyn ToSql + Sync)], held(&named, &origin).as_slice()].concat();
        let terms = params::terms(&lodging.terms);
        let all = [named.as_slice(), &borrowed(&terms)].concat();
        if !self.on(Lane::Peers, Call::writes(WHAT, &self.sql.lodge), &all).await?.is_empty() {
            return Ok(Lodged::Done);
        }
        self.one(Lane::Peers, Call::reads(WHAT, &self.sql.lodged), &named, |row| {
            Ok(match (get(row, "stands")?, get(row, "open")?) {
                (true, true | false) => Lodged::Done,
                (false, false) => Lodged::GateMoved,
                (false, true) => Lodged::Superseded,
            })
        })
        .await
    }

    async fn void(&self, origin: &Origin, attempt: &Attempt) -> Called<()> {
        let call = Call::writes("voiding an escrow", &self.sql.void);
        let (named, origin) = (Named::of(call.what, attempt)?, origin.to_string());
        self.on(Lane::Peers, call, &held(&named, &origin)).await.map(drop)
    }

    async fn lodge_answer(&self, origin: &Origin, attempt: &Attempt, answer: &Answer) -> Called<Written> {
        let call = Call::writes("lodging an answer", &self.sql.lodge_answer);
        let (named, origin) = (Named::of(call.what, attempt)?, origin.to_string());
        let stored = StoredAnswer::of(call.what, answer)?;
        let all = [held(&named, &origin).as_slice(), &stored.params()].concat();
        self.write(Lane::Peers, call, &all).await
    }

    async fn convert(&self, origin: &Origin, most: u32) -> Called<u64> {
        let call = Call::writes("turning escrows into records", &self.sql.convert);
        let params: Params<'_> = &[&origin.to_string(), &i64::from(most)];
        let read = |row: &_| Ok((count(row, "taken")?, get::<bool>(row, "open")?));
        match self.one(Lane::Upkeep, call, params, read).await? {
            (taken, true) => Ok(taken),
            // Zero would say that nothing is left.
            (_, false) => Err(call.not_sent("the running boot is not approved")),
        }
    }

    async fn reap_escrows(&self, most: u32) -> Called<u64> {
        let call = Call::writes("reaping escrows", &self.sql.reap_escrows);
        self.one(Lane::Upkeep, call, &[&i64::from(most)], |row| count(row, "gone")).await
    }
}

/// Parameters that name a claim of another region.
fn held<'a>(named: &'a Named<'_>, origin: &'a String) -> [&'a (dyn ToSql + Sync); 6] {
    let [tenant, key, epoch, attempt, nonce] = named.params();
    [tenant, key, origin, epoch, attempt, nonce]
}

impl Imports for PgStore {
    async fn rows_of(&self, origin: &Origin, after: Option<&KeyId>, most: u32) -> Called<Vec<CopiedRow>> {
        let call = Call::reads("reading the rows of an origin", &self.sql.rows_of);
        let (tenant, key) = after.map(pair).unzip();
        self.list(Lane::Peers, call, &[&origin.to_string(), &tenant, &key, &i64::from(most)], copied).await
    }

    async fn latest_of(&self, origin: &Origin, from: u64, most: u32) -> Called<Latest> {
        let call = Call::reads("reading the latest rows of an origin", &self.sql.latest_of);
        let (leaf, from) = (tables::records(origin), big(call.what, from)?);
        let params: Params<'_> = &[&origin.to_string(), &from, &i64::from(most), &leaf, &BLOCKS];
        let read = |row: &Row| {
            let found = match get::<Option<i64>>(row, "at")? {
                Some(place) => Some((u64::try_from(place).map_err(|_| "at")?, copied(row)?)),
                None => None,
            };
            let next = get::<bool>(row, "goes_on")?.then(|| count(row, "until")).transpose()?;
            Ok((found, next))
        };
        let found = self.list(Lane::Peers, call, params, read).await?;
        let end = found.last().and_then(|(_, next)| *next);
        let rows: Vec<_> = found.into_iter().filter_map(|(row, _)| row).collect();
        // A part that is full may go on within the same blocks.
        let full = rows.last().filter(|_| rows.len() >= most as usize).map(|(place, _)| place + 1);
        Ok(Latest { next: full.or(end), rows })
    }

    async fn restore(&self, rows: &[CopiedRow]) -> Called<Written> {
        let call = Call::writes("restoring rows", &self.sql.restore);
        if rows.iter().any(|copied| copied.row.origin != self.origin) {
            return Err(call.not_sent("a row is of another origin"));
        }
        let stored = stored(call.what, rows)?;
        let columns = columns(call.what, rows, &stored)?;
        let open = self.one(Lane::Upkeep, call, &borrowed(&columns), |row| get::<bool>(row, "open")).await?;
        Ok(if open { Written::GateMoved } else { Written::Done })
    }

    async fn import(&self, origin: &Origin, rows: &[CopiedRow]) -> Called<()> {
        let call = Call::writes("importing rows", &self.sql.import);
        if *origin == self.origin || rows.iter().any(|copied| copied.row.origin != *origin) {
            return Err(call.not_sent("a row is not of the origin that is imported"));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let stored = stored(call.what, rows)?;
        let of: [Param<'_>; 1] = [Box::new(origin.to_string())];
        let params: Vec<Param<'_>> = of.into_iter().chain(columns(call.what, rows, &stored)?).collect();
        let open = self.one(Lane::Upkeep, call, &borrowed(&params), |row| get::<bool>(row, "open")).await?;
        if open { Ok(()) } else { Err(call.not_sent("the running boot is not approved")) }
    }

    async fn reap_imports(&self, most: u32) -> Called<u64> {
        let call = Call::writes("reaping imported rows", &self.sql.reap_imports);
        self.number(Lane::Upkeep, call, &[&i64::from(most)]).await
    }
}

fn copied(row: &Row) -> Result<CopiedRow, rows::Unreadable> {
    Ok(CopiedRow {
        id: rows::key_id(row)?,
        row: rows::read(row)?,
        hold: rows::millis(get(row, "hold_ms")?)?,
        lives: rows::millis(get(row, "lives_ms")?)?,
        tombstone: rows::millis(get(row, "tombstone_ms")?)?,
        route: get::<&str>(row, "route")?.into(),
        path: get(row, "path")?,
    })
}

fn stored<'a>(what: &str, rows: &'a [CopiedRow]) -> Called<Vec<StoredAnswer<'a>>> {
    let stored = rows.iter().map(|copied| match &copied.row.state {
        State::Settled { answer, .. } => StoredAnswer::of(what, answer),
        _ => Ok(StoredAnswer::default()),
    });
    stored.collect()
}

/// Rows, column by column: one statement writes a whole page.
fn columns<'a>(
    what: &'static str,
    rows: &'a [CopiedRow],
    stored: &'a [StoredAnswer<'_>],
) -> Called<[Param<'a>; 29]> {
    let doubted = |copied: &CopiedRow| match copied.row.state {
        State::InDoubt { status: Some(code), .. } => status(what, code).map(Some),
        _ => Ok(None),
    };
    let age = |copied: &CopiedRow| match copied.row.state {
        State::Settled { age, .. } => Some(millis(age)),
        _ => None,
    };
    Ok([
        column(rows, |copied| copied.id.tenant().as_str()),
        column(rows, |copied| copied.id.key().as_bytes()),
        column(rows, |copied| rows::stage(&copied.row.state)),
        checked(rows, |copied| big(what, copied.row.token.epoch))?,
        checked(rows, |copied| small(what, copied.row.token.attempt))?,
        column(rows, |copied| Uuid::from_u128(copied.row.nonce.0)),
        column(rows, |copied| bytes(&copied.row.fingerprint.raw)),
        column(rows, |copied| copied.row.fingerprint.canonical.as_ref().map(bytes)),
        column(rows, |copied| rows::over_json(&copied.row.over)),
        column(rows, |copied| serde_json::Value::from(names(&copied.row.risk))),
        column(rows, |copied| Uuid::from_u128(copied.row.request_id.0)),
        checked(rows, doubted)?,
        column(stored, |stored| stored.status),
        column(stored, |stored| stored.headers.as_deref()),
        column(stored, |stored| stored.body.as_deref()),
        column(stored, |stored| stored.coding),
        column(stored, |stored| stored.length),
        column(rows, age),
        column(rows, |copied| millis(copied.hold)),
        column(rows, |copied| copied.row.expires.as_millis()),
        column(rows, |copied| millis(copied.lives)),
        column(rows, |copied| millis(copied.tombstone)),
        column(rows, |copied| &*copied.route),
        column(rows, |copied| copied.path.as_str()),
        column(rows, |copied| copied.row.principal.as_ref().map(bytes)),
        column(rows, |copied| copied.row.accepted),
        checked(rows, |copied| small(what, copied.row.doubted))?,
        column(rows, |copied| millis(copied.row.settle_time)),
        column(rows, |copied| rows::rule(copied.row.recovery)),
    ])
}

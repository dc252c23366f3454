//! The port `Imports`: rows of other origins that survivors give one another.
//!
//! `rows` tells an imported row from a replicated one. This file must not write to tables that
//! replication writes.

use serde_json::Value;
use uuid::Uuid;

use super::errors;
use super::numbers::{big, millis, small};
use super::rows::{self, StoredAnswer, get};
use super::run::{Call, Params};
use super::{Lane, PgStore, names, packed, upkeep};
use crate::ports::Imports;
use crate::ports::authority::{CopiedRow, Latest};
use crate::ports::store::{StoreError, Written};
use crate::protocol::digest::Digest32;
use crate::protocol::key::KeyId;
use crate::protocol::record::State;
use crate::protocol::region::Origin;

/// Blocks of a table that one call reads: 32 MiB, far less than a statement may take.
const BLOCKS: i64 = 4_096;

impl Imports for PgStore {
    async fn rows_of(
        &self,
        origin: &Origin,
        after: Option<&KeyId>,
        most: u32,
    ) -> Result<Vec<CopiedRow>, StoreError> {
        let call = Call::reads("reading the rows of an origin", &self.sql.rows_of);
        let (tenant, key) = (after.map(|id| id.tenant().as_str()), after.map(|id| id.key().as_bytes()));
        self.list(Lane::Peers, call, &[&origin.to_string(), &tenant, &key, &i64::from(most)], copied).await
    }

    async fn latest_of(&self, origin: &Origin, from: u64, most: u32) -> Result<Latest, StoreError> {
        const WHAT: &str = "reading the latest rows of an origin";
        let call = Call::reads(WHAT, &self.sql.latest_of);
        let (leaf, from) = (names::records(origin), big(WHAT, from)?);
        let params: Params<'_> = &[&origin.to_string(), &from, &i64::from(most), &leaf, &BLOCKS];
        let read = |row: &tokio_postgres::Row| {
            let found = match get::<Option<i64>>(row, "at")? {
                Some(place) => Some((u64::try_from(place).map_err(|_| "at")?, copied(row)?)),
                None => None,
            };
            let next = get::<bool>(row, "goes_on")?.then(|| rows::count(row, "until")).transpose()?;
            Ok((found, next))
        };
        let found = self.list(Lane::Peers, call, params, read).await?;
        let end = found.last().and_then(|(_, next)| *next);
        let rows: Vec<_> = found.into_iter().filter_map(|(row, _)| row).collect();
        // A part that is full may go on within the same blocks.
        let full = rows.last().filter(|_| rows.len() >= most as usize).map(|(place, _)| place + 1);
        Ok(Latest { next: full.or(end), rows })
    }

    async fn restore(&self, rows: &[CopiedRow]) -> Result<Written, StoreError> {
        const WHAT: &str = "restoring rows";
        if rows.iter().any(|copied| copied.row.origin != self.origin) {
            return Err(errors::not_sent(WHAT, "a row is of another origin"));
        }
        let mut columns = Columns::default();
        for copied in rows {
            columns.push(WHAT, copied)?;
        }
        let call = Call::writes(WHAT, &self.sql.restore);
        match self.one(Lane::Upkeep, call, &columns.params(), |row| get::<bool>(row, "open")).await? {
            true => Ok(Written::GateMoved),
            false => Ok(Written::Done),
        }
    }

    async fn import(&self, origin: &Origin, rows: &[CopiedRow]) -> Result<(), StoreError> {
        const WHAT: &str = "importing rows";
        if *origin == self.origin || rows.iter().any(|copied| copied.row.origin != *origin) {
            return Err(errors::not_sent(WHAT, "a row is not of the origin that is imported"));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let mut columns = Columns::default();
        for copied in rows {
            columns.push(WHAT, copied)?;
        }
        let call = Call::writes(WHAT, &self.sql.import);
        let of: Params<'_> = &[&origin.to_string()];
        let params = [of, &columns.params()].concat();
        match self.one(Lane::Upkeep, call, &params, |row| get::<bool>(row, "open")).await? {
            true => Ok(()),
            false => Err(errors::not_sent(WHAT, "the running boot is not approved")),
        }
    }

    async fn reap_imports(&self, most: u32) -> Result<u64, StoreError> {
        let call = Call::writes("reaping imported rows", &self.sql.reap_imports);
        let gone = self.on(Lane::Upkeep, call, &[&i64::from(most)]).await?;
        Ok(gone.len() as u64)
    }
}

/// Reads a row as it is handed over.
fn copied(row: &tokio_postgres::Row) -> Result<CopiedRow, rows::Unreadable> {
    Ok(CopiedRow {
        id: upkeep::key_id(row)?,
        row: rows::read(row)?,
        hold: rows::millis(get(row, "hold_ms")?)?,
        lives: rows::millis(get(row, "lives_ms")?)?,
        tombstone: rows::millis(get(row, "tombstone_ms")?)?,
        route: get::<&str>(row, "route")?.into(),
        path: get(row, "path")?,
    })
}

/// Makes the struct of these columns. They are the statement's parameters after the origin, in its
/// order.
macro_rules! columns {
    ($($name:ident: $of:ty,)*) => {
        /// Rows, column by column: one statement writes a whole page.
        #[derive(Default)]
        struct Columns<'a> {
            $($name: Vec<$of>,)*
        }

        impl Columns<'_> {
            fn params(&self) -> Vec<&(dyn tokio_postgres::types::ToSql + Sync)> {
                vec![$(&self.$name,)*]
            }
        }
    };
}

columns! {
    tenants: &'a str,
    keys: &'a [u8],
    states: i16,
    epochs: i64,
    attempts: i32,
    nonces: Uuid,
    raws: &'a [u8],
    canonicals: Option<&'a [u8]>,
    overs: Value,
    risks: Value,
    request_ids: Uuid,
    doubt_statuses: Option<i16>,
    statuses: Option<i16>,
    headers: Option<Vec<u8>>,
    bodies: Option<Vec<u8>>,
    codings: i16,
    lengths: Option<i32>,
    ages: Option<i64>,
    holds: i64,
    expires: i64,
    lives: i64,
    tombstones: i64,
    routes: &'a str,
    paths: &'a str,
    principals: Option<&'a [u8]>,
    accepted: bool,
    doubted: i32,
    settles: i64,
    rules: i32,
}

impl<'a> Columns<'a> {
    fn push(&mut self, what: &'static str, copied: &'a CopiedRow) -> Result<(), StoreError> {
        let CopiedRow { id, row, hold, lives, tombstone, route, path } = copied;
        let bytes = |digest: &'a Digest32| digest.as_bytes().as_slice();
        self.tenants.push(id.tenant().as_str());
        self.keys.push(id.key().as_bytes());
        self.states.push(rows::stage(&row.state));
        self.epochs.push(big(what, row.token.epoch)?);
        self.attempts.push(small(what, row.token.attempt)?);
        self.nonces.push(Uuid::from_u128(row.nonce.0));
        self.raws.push(bytes(&row.fingerprint.raw));
        self.canonicals.push(row.fingerprint.canonical.as_ref().map(bytes));
        self.overs.push(rows::over_json(&row.over));
        self.risks.push(rows::names(&row.risk).into());
        self.request_ids.push(Uuid::from_u128(row.request_id.0));
        self.push_state(what, &row.state)?;
        self.holds.push(millis(*hold));
        self.expires.push(row.expires.as_millis());
        self.lives.push(millis(*lives));
        self.tombstones.push(millis(*tombstone));
        self.routes.push(route);
        self.paths.push(path);
        self.principals.push(row.principal.as_ref().map(bytes));
        self.accepted.push(row.accepted);
        self.doubted.push(small(what, row.doubted)?);
        self.settles.push(millis(row.settle_time));
        self.rules.push(rows::rule(row.recovery));
        Ok(())
    }

    fn push_state(&mut self, what: &'static str, state: &State) -> Result<(), StoreError> {
        let (doubt, settled) = match state {
            State::Claimed { .. } | State::Released | State::Tombstone => (None, None),
            State::InDoubt { status, .. } => (*status, None),
            State::Settled { answer, age, expired: _ } => (None, Some((answer, age))),
        };
        self.doubt_statuses.push(doubt.map(|status| super::numbers::status(what, status)).transpose()?);
        let stored = settled.map(|(answer, _)| StoredAnswer::of(what, answer)).transpose()?;
        self.codings.push(stored.as_ref().map_or(packed::PLAIN, |stored| stored.coding));
        self.statuses.push(stored.as_ref().map(|stored| stored.status));
        self.lengths.push(stored.as_ref().and_then(|stored| stored.length));
        let (headers, body) = stored.map(|stored| (stored.headers, stored.body)).unzip();
        self.headers.push(headers);
        self.bodies.push(body.flatten().map(|body| body.into_owned()));
        self.ages.push(settled.map(|(_, age)| millis(*age)));
        Ok(())
    }
}

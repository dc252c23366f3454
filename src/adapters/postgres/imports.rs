//! The port `Imports`: rows of other origins that survivors give one another.
//!
//! `rows` tells an imported row from a replicated one. This file must not write to tables that
//! replication writes.

use serde_json::Value;
use uuid::Uuid;

use super::errors::{self, Effect};
use super::keys::{big, millis, small};
use super::rows::{self, StoredAnswer, get};
use super::run::{Call, Params};
use super::{Lane, PgStore, packed, upkeep};
use crate::ports::Imports;
use crate::ports::authority::CopiedRow;
use crate::ports::store::StoreError;
use crate::protocol::digest::Digest32;
use crate::protocol::forget::MayForget;
use crate::protocol::key::KeyId;
use crate::protocol::record::State;
use crate::protocol::region::Origin;
use crate::protocol::time::Date;

impl Imports for PgStore {
    async fn rows_of(
        &self,
        origin: &Origin,
        after: Option<&KeyId>,
        most: u32,
    ) -> Result<Vec<CopiedRow>, StoreError> {
        const WHAT: &str = "reading the rows of an origin";
        let call = Call { what: WHAT, effect: Effect::Reads, sql: &self.sql.rows_of };
        let (tenant, key) = (after.map(|id| id.tenant().as_str()), after.map(|id| id.key().as_bytes()));
        let found =
            self.on(Lane::Peers, call, &[&origin.to_string(), &tenant, &key, &i64::from(most)]).await?;
        let copied = |row: &tokio_postgres::Row| {
            Ok(CopiedRow {
                id: upkeep::key_id(row)?,
                row: rows::read(row)?,
                hold: rows::millis(get(row, "hold_ms")?)?,
                lives: rows::millis(get(row, "lives_ms")?)?,
                tombstone: rows::millis(get(row, "tombstone_ms")?)?,
                route: get::<&str>(row, "route")?.into(),
                path: get(row, "path")?,
            })
        };
        found
            .iter()
            .map(copied)
            .collect::<Result<_, _>>()
            .map_err(|why| errors::unreadable(WHAT, Effect::Reads, why))
    }

    async fn import(&self, origin: &Origin, rows: &[CopiedRow], not_before: Date) -> Result<(), StoreError> {
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
        let call = Call { what: WHAT, effect: Effect::Writes, sql: &self.sql.import };
        let (of, not_before): (Params<'_>, Params<'_>) = (&[&origin.to_string()], &[&not_before.as_millis()]);
        let found = self.on(Lane::Upkeep, call, &[of, &columns.params(), not_before].concat()).await?;
        let open = found.first().ok_or("no row").and_then(|row| get::<bool>(row, "open"));
        match open.map_err(|why| errors::unreadable(WHAT, Effect::Writes, why))? {
            true => Ok(()),
            false => Err(errors::not_sent(
                WHAT,
                "the running boot is not approved, or the database's clock went back",
            )),
        }
    }

    async fn reap_imports(&self, may: MayForget, most: u32) -> Result<u64, StoreError> {
        const WHAT: &str = "reaping imported rows";
        let call = Call { what: WHAT, effect: Effect::Writes, sql: &self.sql.reap_imports };
        let gone = self.on(Lane::Upkeep, call, &[&may.until().as_millis(), &i64::from(most)]).await?;
        Ok(gone.len() as u64)
    }
}

/// Rows, column by column: one statement writes a whole page.
#[derive(Default)]
struct Columns<'a> {
    tenants: Vec<&'a str>,
    keys: Vec<&'a [u8]>,
    states: Vec<i16>,
    epochs: Vec<i64>,
    attempts: Vec<i32>,
    nonces: Vec<Uuid>,
    raws: Vec<&'a [u8]>,
    canonicals: Vec<Option<&'a [u8]>>,
    overs: Vec<Value>,
    risks: Vec<Value>,
    request_ids: Vec<Uuid>,
    doubt_statuses: Vec<Option<i16>>,
    statuses: Vec<Option<i16>>,
    headers: Vec<Option<Vec<u8>>>,
    bodies: Vec<Option<Vec<u8>>>,
    codings: Vec<i16>,
    lengths: Vec<Option<i32>>,
    ages: Vec<Option<i64>>,
    holds: Vec<i64>,
    expires: Vec<i64>,
    lives: Vec<i64>,
    tombstones: Vec<i64>,
    routes: Vec<&'a str>,
    paths: Vec<&'a str>,
    principals: Vec<Option<&'a [u8]>>,
    accepted: Vec<bool>,
    doubted: Vec<i32>,
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
        Ok(())
    }

    fn push_state(&mut self, what: &'static str, state: &State) -> Result<(), StoreError> {
        let (doubt, settled) = match state {
            State::Claimed { .. } | State::Released | State::Tombstone => (None, None),
            State::InDoubt { status, .. } => (*status, None),
            State::Settled { answer, age, expired: _ } => (None, Some((answer, age))),
        };
        self.doubt_statuses.push(doubt.map(|status| super::keys::status(what, status)).transpose()?);
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

    /// Parameters in the order of the statement, after the origin.
    fn params(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 27] {
        [
            &self.tenants,
            &self.keys,
            &self.states,
            &self.epochs,
            &self.attempts,
            &self.nonces,
            &self.raws,
            &self.canonicals,
            &self.overs,
            &self.risks,
            &self.request_ids,
            &self.doubt_statuses,
            &self.statuses,
            &self.headers,
            &self.bodies,
            &self.codings,
            &self.lengths,
            &self.ages,
            &self.holds,
            &self.expires,
            &self.lives,
            &self.tombstones,
            &self.routes,
            &self.paths,
            &self.principals,
            &self.accepted,
            &self.doubted,
        ]
    }
}

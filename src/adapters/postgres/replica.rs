//! The port `Replica`: heartbeats, the memory of peers, the state of incoming replication.
//!
//! Most calls use the control connections, so a full key pool cannot delay a heartbeat. This file
//! must not judge lag or health.

use super::errors::{self, Effect};
use super::run::Call;
use super::{Lane, PgStore, names, rows, statements};
use crate::ports::Replica;
use crate::ports::store::{Beat, Heartbeat, PeerMemory, Slot, StoreError, Subscription};
use crate::protocol::region::Origin;
use crate::protocol::time::Date;

impl Replica for PgStore {
    async fn beat(&self) -> Result<Option<Beat>, StoreError> {
        const WHAT: &str = "a heartbeat";
        let call = Call { what: WHAT, effect: Effect::Writes, sql: &self.sql.beat };
        let found = self.on(Lane::Control, call, &[]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let beat = || Ok(Beat { seq: number(row, "seq")?, date: Date(rows::get(row, "beat_ms")?) });
        beat().map(Some).map_err(|why| errors::unreadable(WHAT, Effect::Writes, why))
    }

    async fn heartbeats(&self) -> Result<Vec<Heartbeat>, StoreError> {
        self.list("reading the heartbeats", statements::HEARTBEATS, |row| {
            let (origin, seq, epoch) = (origin(row)?, number(row, "seq")?, number(row, "epoch")?);
            let copied: Vec<&str> = rows::get(row, "copied")?;
            let subscription = names::subscription(&self.origin.region, &origin.region);
            let whole = origin == self.origin || copied.contains(&subscription.as_str());
            Ok(Heartbeat { origin, seq, epoch, whole, date: Date(rows::get(row, "beat_ms")?) })
        })
        .await
    }

    async fn remember(&self, memory: &[PeerMemory]) -> Result<(), StoreError> {
        const WHAT: &str = "remembering the peers";
        if memory.is_empty() {
            return Ok(());
        }
        let origins: Vec<String> = memory.iter().map(|peer| peer.origin.to_string()).collect();
        let numbers = |of: fn(&PeerMemory) -> u64| {
            let numbers = memory.iter().map(|peer| i64::try_from(of(peer)));
            let too_large = |_| errors::not_sent(WHAT, "a heartbeat's number is too large to be stored");
            numbers.collect::<Result<Vec<i64>, _>>().map_err(too_large)
        };
        let (applied, imported) = (numbers(|peer| peer.applied)?, numbers(|peer| peer.imported)?);
        // A lag beyond the range means the same as the largest that fits.
        let lags: Vec<Option<i64>> = memory
            .iter()
            .map(|peer| {
                peer.lag.map(|lag| i64::try_from(lag.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX))
            })
            .collect();
        let call = Call { what: WHAT, effect: Effect::Writes, sql: statements::REMEMBER };
        self.on(Lane::Control, call, &[&origins, &applied, &lags, &imported]).await?;
        Ok(())
    }

    async fn recall(&self) -> Result<Vec<PeerMemory>, StoreError> {
        self.list("recalling the peers", statements::RECALL, |row| {
            Ok(PeerMemory {
                origin: origin(row)?,
                applied: number(row, "applied")?,
                lag: rows::get::<Option<i64>>(row, "lag_ms")?.map(rows::millis).transpose()?,
                imported: number(row, "imported")?,
            })
        })
        .await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        let prefix = names::subscription_prefix(&self.origin.region);
        const WHAT: &str = "reading the subscriptions";
        // Operators may ask often: not over the connections of the heartbeats.
        let call = Call { what: WHAT, effect: Effect::Reads, sql: statements::SUBSCRIPTIONS };
        let found = self.on(Lane::Admin, call, &[]).await?;
        let found = all(WHAT, &found, |row| {
            let name: &str = rows::get(row, "name")?;
            // A subscription of another application in the same database does not count.
            let Some(from) = name.strip_prefix(&prefix).and_then(names::region) else { return Ok(None) };
            let (ready, streaming) = (rows::get(row, "ready")?, rows::get(row, "streaming")?);
            Ok(Some(Subscription { from: from.to_string(), ready, streaming }))
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn slots(&self) -> Result<Vec<Slot>, StoreError> {
        self.list("reading the replication slots", statements::SLOTS, |row| {
            let name: &str = rows::get(row, "name")?;
            let (retained, lost) = (number(row, "retained")?, rows::get(row, "lost")?);
            Ok(Slot { name: name.to_owned(), retained, lost })
        })
        .await
    }
}

impl PgStore {
    async fn list<T>(
        &self,
        what: &'static str,
        sql: &'static str,
        read: impl Fn(&tokio_postgres::Row) -> Result<T, rows::Unreadable> + Send,
    ) -> Result<Vec<T>, StoreError> {
        let found = self.on(Lane::Control, Call { what, effect: Effect::Reads, sql }, &[]).await?;
        all(what, &found, read)
    }
}

fn all<T>(
    what: &str,
    found: &[tokio_postgres::Row],
    read: impl Fn(&tokio_postgres::Row) -> Result<T, rows::Unreadable>,
) -> Result<Vec<T>, StoreError> {
    let read: Result<_, _> = found.iter().map(read).collect();
    read.map_err(|why| errors::unreadable(what, Effect::Reads, why))
}

fn origin(row: &tokio_postgres::Row) -> Result<Origin, rows::Unreadable> {
    Origin::parse(rows::get(row, "origin")?).map_err(|_| "origin")
}

fn number(row: &tokio_postgres::Row, name: &'static str) -> Result<u64, rows::Unreadable> {
    u64::try_from(rows::get::<i64>(row, name)?).map_err(|_| name)
}

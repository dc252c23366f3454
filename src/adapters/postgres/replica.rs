//! The port `Replica`: heartbeats, the memory of peers, the state of incoming replication.
//!
//! Most calls use the control connections, so a full key pool cannot delay a heartbeat. This file
//! must not judge lag or health.

use super::errors;
use super::numbers::{big, millis};
use super::rows::count;
use super::run::Call;
use super::{Lane, PgStore, names, rows};
use crate::ports::Replica;
use crate::ports::store::{Beat, Heartbeat, PeerMemory, Slot, StoreError, Subscription};
use crate::protocol::observed::{Observed, Passed};
use crate::protocol::region::Origin;
use crate::protocol::time::Date;

impl Replica for PgStore {
    async fn beat(&self, passed: Option<Passed>) -> Result<Option<Beat>, StoreError> {
        const WHAT: &str = "a heartbeat";
        let call = Call::writes(WHAT, &self.sql.beat);
        let from = passed.and_then(|passed| passed.from);
        let from = from.map(|Observed(ms)| big(WHAT, ms)).transpose()?;
        let (by, step) = passed.map(|passed| (millis(passed.by), millis(passed.step))).unzip();
        let found = self.on(Lane::Control, call, &[&from, &by, &step]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let beat = || {
            let observed = Observed(count(row, "observed_ms")?);
            let (date, counted) = (Date(rows::get(row, "beat_ms")?), rows::get(row, "counted")?);
            Ok(Beat { seq: count(row, "seq")?, date, observed, counted })
        };
        beat().map(Some).map_err(|why| call.unreadable(why))
    }

    async fn heartbeats(&self) -> Result<Vec<Heartbeat>, StoreError> {
        self.list(Lane::Control, Call::reads("reading the heartbeats", &self.sql.heartbeats), &[], |row| {
            let (origin, seq, epoch) = (origin(row)?, count(row, "seq")?, count(row, "epoch")?);
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
        let call = Call::writes(WHAT, &self.sql.remember);
        self.on(Lane::Control, call, &[&origins, &applied, &lags, &imported]).await?;
        Ok(())
    }

    async fn recall(&self) -> Result<Vec<PeerMemory>, StoreError> {
        self.list(Lane::Control, Call::reads("recalling the peers", &self.sql.recall), &[], |row| {
            Ok(PeerMemory {
                origin: origin(row)?,
                applied: count(row, "applied")?,
                lag: rows::get::<Option<i64>>(row, "lag_ms")?.map(rows::millis).transpose()?,
                imported: count(row, "imported")?,
            })
        })
        .await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        let prefix = names::subscription_prefix(&self.origin.region);
        let call = Call::reads("reading the subscriptions", &self.sql.subscriptions);
        // Operators may ask often: not over the connections of the heartbeats.
        let found = self.list(Lane::Admin, call, &[], |row| {
            let name: &str = rows::get(row, "name")?;
            // A subscription of another application in the same database does not count.
            let Some(from) = name.strip_prefix(&prefix).and_then(names::region) else { return Ok(None) };
            let (ready, streaming) = (rows::get(row, "ready")?, rows::get(row, "streaming")?);
            Ok(Some(Subscription { from: from.to_string(), ready, streaming }))
        });
        Ok(found.await?.into_iter().flatten().collect())
    }

    async fn slots(&self) -> Result<Vec<Slot>, StoreError> {
        self.list(Lane::Control, Call::reads("reading the replication slots", &self.sql.slots), &[], |row| {
            let name: &str = rows::get(row, "name")?;
            let (retained, lost) = (count(row, "retained")?, rows::get(row, "lost")?);
            Ok(Slot { name: name.to_owned(), retained, lost })
        })
        .await
    }
}

fn origin(row: &tokio_postgres::Row) -> Result<Origin, rows::Unreadable> {
    Origin::parse(rows::get(row, "origin")?).map_err(|_| "origin")
}

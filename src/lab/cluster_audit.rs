//! Reads from a region's store which keys ran at risk, more than once, or twice: the drills' check
//! of the product's audit. It reads as the superuser and bypasses the gateway, so that a fault of
//! the audit itself shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;

use super::cluster::Cluster;
use super::files::DATABASE;
use super::region::Region;
use super::wait;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Some row records that only the window allowed its claim.
    pub at_risk: bool,
    /// Some row was claimed over other rows, or by a second attempt.
    pub again: bool,
    pub journal: BTreeSet<String>,
}

impl Noted {
    /// True if the store lists the key for people: an attempt at risk, a double, or a late answer.
    pub fn is_listed(&self) -> bool {
        self.at_risk || self.journal.contains("double") || self.journal.contains("late")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub settled: BTreeSet<String>,
    /// No row is settled, and some row is claimed or in doubt.
    pub open: BTreeSet<String>,
}

/// Findings of all these regions' stores together, about the keys that begin with `mark`.
pub async fn noted(regions: &[Region], mark: &str) -> Result<BTreeMap<String, Noted>> {
    let mut all: BTreeMap<String, Noted> = BTreeMap::new();
    for region in regions {
        let client = region.cluster.connect(DATABASE).await?;
        let rows = "select convert_from(key, 'UTF8'), bool_or(cardinality(risk) > 0), bool_or(over <> '[]' or attempt > 1) \
                    from onceway.records where starts_with(convert_from(key, 'UTF8'), $1) group by key";
        for row in client.query(rows, &[&mark]).await? {
            let noted = all.entry(row.try_get(0)?).or_default();
            noted.at_risk |= row.try_get::<_, bool>(1)?;
            noted.again |= row.try_get::<_, bool>(2)?;
        }
        let journal = "select convert_from(key, 'UTF8'), kind from onceway.journal \
                       where key is not null and starts_with(convert_from(key, 'UTF8'), $1)";
        for row in client.query(journal, &[&mark]).await? {
            all.entry(row.try_get(0)?).or_default().journal.insert(row.try_get(1)?);
        }
    }
    all.retain(|_, noted| *noted != Noted::default());
    Ok(all)
}

impl Cluster {
    /// Final states of the keys that begin with `mark`.
    pub async fn ends(&self, mark: &str) -> Result<Ends> {
        let client = self.connect(DATABASE).await?;
        let rows = "select convert_from(key, 'UTF8'), bool_or(state = 4), bool_or(state in (1, 2)) \
                    from onceway.records where starts_with(convert_from(key, 'UTF8'), $1) group by key";
        let mut ends = Ends::default();
        for row in client.query(rows, &[&mark]).await? {
            if row.try_get(1)? {
                ends.settled.insert(row.try_get(0)?);
            } else if row.try_get(2)? {
                ends.open.insert(row.try_get(0)?);
            }
        }
        Ok(ends)
    }

    /// Keys that begin with `mark` and of which this store holds a row written by `region`.
    pub async fn written_by(&self, region: &str, mark: &str) -> Result<BTreeSet<String>> {
        let client = self.connect(DATABASE).await?;
        let rows = "select distinct convert_from(key, 'UTF8') from onceway.records \
                    where starts_with(convert_from(key, 'UTF8'), $1) and starts_with(origin, $2)";
        client.query(rows, &[&mark, &region]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Waits until this server has sent every commit up to now to every subscriber. A sent commit
    /// may still be on its way.
    pub async fn sent(&self, within: Duration) -> Result<()> {
        let client = self.connect(DATABASE).await?;
        let now = flushed(&client).await?;
        let sent = async || {
            let behind = "select from pg_stat_replication where sent_lsn < $1::text::pg_lsn limit 1";
            Ok(client.query_opt(behind, &[&now]).await?.is_none().then_some(()))
        };
        wait::for_some("what is committed to be sent", within, sent).await
    }

    /// Number of subscriptions and slots here that name that region.
    pub async fn ties_to(&self, database: &str, region: &str) -> Result<i64> {
        let client = self.connect(database).await?;
        let like = format!("%{}%", region.replace('-', "\\_"));
        let sql = "select (select count(*) from pg_subscription where subname like $1) + \
                          (select count(*) from pg_replication_slots where slot_name like $1)";
        Ok(client.query_one(sql, &[&like]).await?.try_get(0)?)
    }
}

/// The position of the last commit.
pub(super) async fn flushed(client: &tokio_postgres::Client) -> Result<String> {
    Ok(client.query_one("select pg_current_wal_flush_lsn()::text", &[]).await?.try_get(0)?)
}

//! What a region's store says about keys that ran at risk, more than once, or twice: the drills' own look behind the product's audit.
//!
//! Neighbours: `cluster` connects, the drills hold this against the ledger. It reads as the superuser, behind every door, so that a fault of
//! the audit itself would show. It must not change a row, apart from switching subscriptions off and on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;

use super::cluster::Cluster;
use super::wait;

/// What a store says of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Some row says that the window alone allowed its claim.
    pub at_risk: bool,
    /// Some row was claimed over other rows, or by a second attempt.
    pub again: bool,
    /// Kinds of journal entries.
    pub journal: BTreeSet<String>,
}

impl Noted {
    /// Adds what another store says.
    pub fn merge(&mut self, other: Noted) {
        self.at_risk |= other.at_risk;
        self.again |= other.again;
        self.journal.extend(other.journal);
    }

    /// Whether the store lists the key for people: an attempt at risk, a double, or an answer that came too late.
    pub fn is_listed(&self) -> bool {
        self.at_risk || self.journal.contains("double") || self.journal.contains("late")
    }
}

/// How keys stand in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Some row is settled.
    pub settled: BTreeSet<String>,
    /// None is, and some row is claimed or in doubt.
    pub open: BTreeSet<String>,
}

impl Cluster {
    /// How the keys that begin with `mark` stand here.
    pub async fn ends(&self, database: &str, mark: &str) -> Result<Ends> {
        let client = self.connect(database).await?;
        let rows = "select convert_from(key, 'UTF8'), bool_or(state = 4), bool_or(state in (1, 2)) \
                    from onceway.records where starts_with(convert_from(key, 'UTF8'), $1) group by key";
        let mut ends = Ends::default();
        for row in client.query(rows, &[&mark]).await? {
            let (key, settled, open): (String, bool, bool) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            match (settled, open) {
                (true, _) => ends.settled.insert(key),
                (false, true) => ends.open.insert(key),
                (false, false) => false,
            };
        }
        Ok(ends)
    }

    /// What this store says of the keys that begin with `mark`; keys that it says nothing about are left out.
    pub async fn noted(&self, database: &str, mark: &str) -> Result<BTreeMap<String, Noted>> {
        let client = self.connect(database).await?;
        let mut all: BTreeMap<String, Noted> = BTreeMap::new();
        let rows = "select convert_from(key, 'UTF8'), bool_or(cardinality(risk) > 0), bool_or(over <> '[]' or attempt > 1) \
                    from onceway.records where starts_with(convert_from(key, 'UTF8'), $1) group by key";
        for row in client.query(rows, &[&mark]).await? {
            let noted = all.entry(row.try_get(0)?).or_default();
            noted.at_risk = row.try_get(1)?;
            noted.again = row.try_get(2)?;
        }
        let journal = "select convert_from(key, 'UTF8'), kind from onceway.journal \
                       where key is not null and starts_with(convert_from(key, 'UTF8'), $1)";
        for row in client.query(journal, &[&mark]).await? {
            all.entry(row.try_get(0)?).or_default().journal.insert(row.try_get(1)?);
        }
        all.retain(|_, noted| *noted != Noted::default());
        Ok(all)
    }

    /// The keys that begin with `mark` and of which this store holds a row that `region` wrote.
    pub async fn written_by(&self, database: &str, region: &str, mark: &str) -> Result<BTreeSet<String>> {
        let client = self.connect(database).await?;
        let rows = "select distinct convert_from(key, 'UTF8') from onceway.records \
                    where starts_with(convert_from(key, 'UTF8'), $1) and starts_with(origin, $2)";
        client.query(rows, &[&mark, &region]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Waits until every subscriber has been sent what is committed here by now, which is not to say that it has arrived.
    pub async fn sent(&self, database: &str, within: Duration) -> Result<()> {
        let client = self.connect(database).await?;
        let now: String =
            client.query_one("select pg_current_wal_flush_lsn()::text", &[]).await?.try_get(0)?;
        let sent = async || {
            let behind = "select from pg_stat_replication where sent_lsn < $1::text::pg_lsn limit 1";
            Ok(client.query_opt(behind, &[&now]).await?.is_none().then_some(()))
        };
        wait::for_some("what is committed to be sent", within, sent).await
    }

    /// How many subscriptions and slots here name that region.
    pub async fn ties_to(&self, database: &str, region: &str) -> Result<i64> {
        let client = self.connect(database).await?;
        let like = format!("%{}%", region.replace('-', "\\_"));
        let sql = "select (select count(*) from pg_subscription where subname like $1) + \
                          (select count(*) from pg_replication_slots where slot_name like $1)";
        Ok(client.query_one(sql, &[&like]).await?.try_get(0)?)
    }

    /// Throws this region's acceptor away and makes another one, as a new disk would.
    pub async fn replace_acceptor(&self, database: &str) -> Result<()> {
        let client = self.connect(database).await?;
        let anew = "update onceway.acceptor set id = gen_random_uuid(), version = 1, state = null";
        client.execute(anew, &[]).await?;
        Ok(())
    }
}

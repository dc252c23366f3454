//! A region's store in a rival design: one row per key and region that tried it, and a log that the
//! other regions follow.
//!
//! The cluster says how far each region follows each other. It must not look at another region's
//! rows except those that arrived.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{RequestId, Token};
use onceway::protocol::region::RegionName;

/// The state of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The attempt runs, or its process is dead.
    Open,
    /// The attempt may have happened.
    Doubt,
    /// The attempt did not happen.
    Released,
    /// The attempt is over, with this answer.
    Answered(u16, Bytes),
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The number; numbers of two regions may be equal.
    pub token: Token,
    /// The request of the attempt.
    pub request_id: RequestId,
    /// The beginning, since the world began.
    pub since: Duration,
    /// The state.
    pub state: State,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The caller may run the key.
    Yours(Token),
    /// The key was run before.
    Answered(u16, Bytes),
    /// Another process runs the key.
    Busy,
    /// An attempt of this region may have happened.
    Doubt(Token, RegionName),
}

/// The store.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    generation: u32,
    rows: BTreeMap<KeyId, BTreeMap<RegionName, Row>>,
    log: Vec<(Duration, KeyId, Row)>,
    /// The generation of each other region's store, and the number of its applied commits.
    applied: BTreeMap<RegionName, (u32, usize)>,
}

impl Table {
    pub(crate) fn new(generation: u32) -> Self {
        Self { generation, rows: BTreeMap::new(), log: Vec::new(), applied: BTreeMap::new() }
    }

    /// The store's number in its region, counted from 1. Each replacement starts empty.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Applies another region's commits up to this time.
    pub(crate) fn take_over(&mut self, from: &RegionName, other: &Self, until: Duration) {
        let applied = self.applied.entry(from.clone()).or_insert((other.generation, 0));
        if applied.0 != other.generation {
            *applied = (other.generation, 0);
        }
        for (_, id, row) in other.log[applied.1..].iter().take_while(|(at, ..)| *at <= until) {
            self.rows.entry(id.clone()).or_default().insert(from.clone(), row.clone());
            applied.1 += 1;
        }
    }

    /// Claims a key for `me`, unless it ran or runs. An attempt that has been open for longer than
    /// `hold` may have happened. `over` names the attempt in doubt that the caller may run again.
    pub(crate) fn claim(
        &mut self,
        me: &RegionName,
        id: &KeyId,
        request_id: RequestId,
        now: Duration,
        hold: Duration,
        over: Option<&(Token, RegionName)>,
    ) -> Claimed {
        let rows = || self.rows.get(id).into_iter().flatten();
        let answered = |(_, row): (&RegionName, &Row)| match &row.state {
            State::Answered(status, body) => Some((row.since, *status, body.clone())),
            State::Open | State::Doubt | State::Released => None,
        };
        // If two regions answered, all go by the first answer.
        if let Some((_, status, body)) = rows().filter_map(answered).min_by_key(|(since, ..)| *since) {
            return Claimed::Answered(status, body);
        }
        let mut doubt = None;
        for (region, row) in rows() {
            match row.state {
                State::Open if now < row.since + hold => return Claimed::Busy,
                State::Open | State::Doubt => doubt = Some((row.token, region.clone())).max(doubt),
                State::Released | State::Answered(..) => {}
            }
        }
        if let Some((token, region)) = doubt
            && over != Some(&(token, region.clone()))
        {
            return Claimed::Doubt(token, region);
        }
        let attempt = rows().map(|(_, row)| row.token.attempt).max().unwrap_or(0) + 1;
        let token = Token { epoch: 1, attempt };
        self.write(me, id, Row { token, request_id, since: now, state: State::Open }, now);
        Claimed::Yours(token)
    }

    /// Ends an attempt of `me`, unless another one replaced it.
    pub(crate) fn end(
        &mut self,
        me: &RegionName,
        id: &KeyId,
        request_id: RequestId,
        state: State,
        now: Duration,
    ) {
        let row = self.rows.get(id).and_then(|rows| rows.get(me)).filter(|row| row.request_id == request_id);
        if let Some(row) = row.cloned() {
            self.write(me, id, Row { state, ..row }, now);
        }
    }

    /// Keeps the outcome of an attempt in doubt, of any region.
    pub(crate) fn resolve(&mut self, me: &RegionName, id: &KeyId, row: Row, now: Duration) {
        self.write(me, id, row, now);
    }

    fn write(&mut self, me: &RegionName, id: &KeyId, row: Row, now: Duration) {
        self.rows.entry(id.clone()).or_default().insert(me.clone(), row.clone());
        self.log.push((now, id.clone(), row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceway::protocol::key::{Key, Tenant};

    const HOLD: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn region(name: &str) -> RegionName {
        RegionName::parse(name).unwrap()
    }

    fn id() -> KeyId {
        KeyId::new(Tenant::parse("t").unwrap(), Key::parse("0123456789abcdef-k").unwrap())
    }

    fn claim(table: &mut Table, me: &str, request: u128, now: u64) -> Claimed {
        table.claim(&region(me), &id(), RequestId(request), at(now), HOLD, None)
    }

    #[test]
    fn one_region_runs_a_key_once_and_replays_its_answer() {
        let mut table = Table::new(1);
        let first = Token { epoch: 1, attempt: 1 };
        assert_eq!(claim(&mut table, "a", 1, 0), Claimed::Yours(first));
        assert_eq!(claim(&mut table, "a", 2, 9), Claimed::Busy);
        table.end(&region("a"), &id(), RequestId(1), State::Answered(201, "x".into()), at(9));
        assert_eq!(claim(&mut table, "a", 2, 30), Claimed::Answered(201, "x".into()));
    }

    #[test]
    fn what_was_open_for_too_long_may_have_happened_and_what_was_released_did_not() {
        let mut table = Table::new(1);
        let first = Token { epoch: 1, attempt: 1 };
        claim(&mut table, "a", 1, 0);
        let doubt = (first, region("a"));
        assert_eq!(claim(&mut table, "a", 2, 10), Claimed::Doubt(first, region("a")));
        let again = table.claim(&region("a"), &id(), RequestId(2), at(10), HOLD, Some(&doubt));
        assert_eq!(again, Claimed::Yours(Token { epoch: 1, attempt: 2 }));
        table.end(&region("a"), &id(), RequestId(1), State::Released, at(11));
        assert_eq!(
            claim(&mut table, "a", 3, 11),
            Claimed::Busy,
            "the first attempt is not the last any more"
        );
        table.end(&region("a"), &id(), RequestId(2), State::Released, at(11));
        assert_eq!(claim(&mut table, "a", 3, 11), Claimed::Yours(Token { epoch: 1, attempt: 3 }));
    }

    #[test]
    fn another_region_sees_what_has_arrived() {
        let (mut one, mut other) = (Table::new(1), Table::new(1));
        claim(&mut one, "a", 1, 5);
        other.take_over(&region("a"), &one, at(4));
        assert!(matches!(claim(&mut other.clone(), "b", 2, 5), Claimed::Yours(_)));
        other.take_over(&region("a"), &one, at(5));
        assert_eq!(claim(&mut other, "b", 2, 5), Claimed::Busy);
        let mut rebuilt = Table::new(2);
        claim(&mut rebuilt, "a", 3, 40);
        other.take_over(&region("a"), &rebuilt, at(40));
        assert_eq!(claim(&mut other, "b", 2, 41), Claimed::Busy, "an empty store is followed from its start");
    }
}

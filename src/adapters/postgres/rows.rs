//! Columns to values: rows of keys, answers, and the parts of rows that are stored as JSON.
//!
//! `sql/columns.sql` names the columns of a row. A row that cannot be read fails the whole call: an
//! unreadable row is never an absent one. The database judged the times.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::errors::Effect;
use super::{answer, errors};
use crate::ports::store::{ClaimReply, StoreError};
use crate::protocol::fingerprint::{Digest32, Fingerprint};
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::{Answer, AnswerBody, Nonce, Recovery, RequestId, Row, State, Token};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::Date;

/// Fault of a row, in our own words.
pub(super) type Unreadable = &'static str;

/// Numbers of `state` in the schema.
pub(super) const CLAIMED: i16 = 1;
pub(super) const IN_DOUBT: i16 = 2;
pub(super) const RELEASED: i16 = 3;
pub(super) const SETTLED: i16 = 4;
const TOMBSTONE: i16 = 5;
/// Numbers of `recovery`; a greater one is the attempts of `rerun`.
const PROBE: i32 = -1;
const PARK: i32 = 0;

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a PgRow, name: &'static str) -> Result<T, Unreadable> {
    row.try_get(name).map_err(|_wrong_type| name)
}

/// Columns of a row by name. A search begins behind the one found last: readers ask in order.
pub(super) struct Columns<'a> {
    row: &'a PgRow,
    next: Cell<usize>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(row: &'a PgRow) -> Self {
        Self { row, next: Cell::new(0) }
    }

    fn get<T: FromSql<'a>>(&self, name: &'static str) -> Result<T, Unreadable> {
        let (columns, next) = (self.row.columns(), self.next.get());
        let found =
            (next..columns.len()).chain(0..next).find(|at| columns[*at].name() == name).ok_or(name)?;
        self.next.set(found + 1);
        self.row.try_get(found).map_err(|_wrong_type| name)
    }
}

pub(super) fn count(row: &PgRow, name: &'static str) -> Result<u64, Unreadable> {
    u64::try_from(get::<i64>(row, name)?).map_err(|_| name)
}

/// Index of the requested key that a row is about.
pub(super) fn place(row: &PgRow) -> Result<usize, Unreadable> {
    let ord = usize::try_from(get::<i64>(row, "ord")?).map_err(|_| "ord")?;
    ord.checked_sub(1).ok_or("ord")
}

pub(super) fn key_id(row: &PgRow) -> Result<KeyId, Unreadable> {
    id_of(get(row, "tenant")?, get(row, "key")?)
}

pub(super) fn id_of(tenant: &str, key: &[u8]) -> Result<KeyId, Unreadable> {
    Ok(KeyId::new(Tenant::parse(tenant).map_err(|_| "tenant")?, key_of(key)?))
}

pub(super) fn key_of(key: &[u8]) -> Result<Key, Unreadable> {
    Key::parse(std::str::from_utf8(key).map_err(|_| "key")?).map_err(|_| "key")
}

/// Mark behind the origin of an imported row: replication writes bare origins only.
pub(super) const IMPORTED: &str = "!";

/// A row of a key, and the way by which it came.
pub(super) struct Standing {
    row: Row,
    imported: bool,
}

pub(super) fn standing(row: &PgRow) -> Result<Standing, Unreadable> {
    Ok(Standing { imported: get::<&str>(row, "origin")?.ends_with(IMPORTED), row: read(row)? })
}

pub(super) fn claim_reply(what: &str, found: &[PgRow]) -> Result<ClaimReply, StoreError> {
    let unknown = |why| errors::unreadable(what, Effect::Writes, why);
    let mut stood = Vec::new();
    for row in found {
        match get::<&str>(row, "verdict").map_err(unknown)? {
            "won" => {
                let token: Token = token(&Columns::of(row)).map_err(unknown)?;
                let expires = Date(get(row, "expires_ms").map_err(unknown)?);
                return Ok(ClaimReply::Won { token, expires });
            }
            "gate" => return Ok(ClaimReply::GateMoved),
            "found" => stood.push(row),
            _ => return Err(unknown("verdict")),
        }
    }
    // A claim that found rows wrote nothing, so rows that cannot be read leave no doubt.
    let definite = |why| errors::unreadable(what, Effect::Reads, why);
    if stood.is_empty() {
        return Err(unknown("no row"));
    }
    let rows = stood.into_iter().map(standing).collect::<Result<_, _>>().map_err(definite)?;
    Ok(ClaimReply::Found(of_key(rows)))
}

/// Keeps one row for each origin. Of a replicated and an imported row, the higher token counts; of
/// one attempt, the later state; otherwise the replicated one.
pub(super) fn of_key(rows: Vec<Standing>) -> Vec<Row> {
    let mut kept: Vec<Standing> = Vec::with_capacity(rows.len());
    for next in rows {
        match kept.iter_mut().find(|held| held.row.origin == next.row.origin) {
            None => kept.push(next),
            Some(held) => {
                let rank = |one: &Standing| (one.row.token, stage(&one.row.state), !one.imported);
                if rank(&next) > rank(held) {
                    *held = next;
                }
            }
        }
    }
    kept.into_iter().map(|standing| standing.row).collect()
}

/// Rank of a state. States of one attempt come in this order only.
pub(super) fn stage(state: &State) -> i16 {
    match state {
        State::Claimed { .. } => CLAIMED,
        State::InDoubt { .. } => IN_DOUBT,
        State::Released => RELEASED,
        State::Settled { .. } => SETTLED,
        State::Tombstone => TOMBSTONE,
    }
}

pub(super) fn read(row: &PgRow) -> Result<Row, Unreadable> {
    let row = &Columns::of(row);
    let origin: &str = row.get("origin")?;
    Ok(Row {
        origin: Origin::parse(origin.strip_suffix(IMPORTED).unwrap_or(origin)).map_err(|_| "origin")?,
        token: token(row)?,
        nonce: Nonce(row.get::<Uuid>("nonce")?.as_u128()),
        fingerprint: Fingerprint {
            raw: digest(row.get("fp_raw")?)?,
            canonical: row.get::<Option<&[u8]>>("fp_canonical")?.map(digest).transpose()?,
        },
        state: state(row)?,
        over: over(&row.get("over")?)?,
        risk: row
            .get::<Vec<&str>>("risk")?
            .into_iter()
            .map(|name| RegionName::parse(name).map_err(|_| "risk"))
            .collect::<Result<_, _>>()?,
        request_id: RequestId(row.get::<Uuid>("request_id")?.as_u128()),
        expires: Date(row.get("expires_ms")?),
        principal: row.get::<Option<&[u8]>>("principal")?.map(digest).transpose()?,
        accepted: row.get("accepted")?,
        doubted: u32::try_from(row.get::<i32>("doubted")?).map_err(|_| "doubted")?,
        settle_time: millis(row.get("settle_ms")?)?,
        recovery: match row.get::<i32>("recovery")? {
            PROBE => Recovery::Probe,
            PARK => Recovery::Park,
            attempts => Recovery::Rerun { max_attempts: u32::try_from(attempts).map_err(|_| "recovery")? },
        },
    })
}

/// The number of a rule in `recovery`.
pub(super) fn rule(recovery: Recovery) -> i32 {
    match recovery {
        Recovery::Probe => PROBE,
        Recovery::Park => PARK,
        Recovery::Rerun { max_attempts } => max_attempts.min(Recovery::MOST_ATTEMPTS) as i32,
    }
}

pub(super) fn token(row: &Columns<'_>) -> Result<Token, Unreadable> {
    Ok(Token {
        epoch: u64::try_from(row.get::<i64>("epoch")?).map_err(|_| "epoch")?,
        attempt: u32::try_from(row.get::<i32>("attempt")?).map_err(|_| "attempt")?,
    })
}

fn state(row: &Columns<'_>) -> Result<State, Unreadable> {
    // Below zero: the time since the hold ended.
    let hold: i64 = row.get("hold_left_ms")?;
    let (left, past) = (millis(hold.max(0))?, Duration::from_millis(hold.min(0).unsigned_abs()));
    match row.get::<i16>("state")? {
        CLAIMED => Ok(State::Claimed { left, past }),
        IN_DOUBT => {
            let status = row.get::<Option<i16>>("doubt_status")?;
            let status =
                status.map(|status| u16::try_from(status).map_err(|_| "doubt_status")).transpose()?;
            Ok(State::InDoubt { status, left, past })
        }
        RELEASED => Ok(State::Released),
        SETTLED => Ok(State::Settled {
            answer: Arc::new(answer(row)?),
            age: millis(row.get("settled_age_ms")?)?,
            expired: row.get("expired")?,
        }),
        TOMBSTONE => Ok(State::Tombstone),
        _ => Err("state"),
    }
}

pub(super) fn answer(row: &Columns<'_>) -> Result<Answer, Unreadable> {
    Ok(Answer {
        status: u16::try_from(row.get::<i16>("answer_status")?).map_err(|_| "answer_status")?,
        headers: answer::decode(row.get("answer_headers")?).ok_or("answer_headers")?,
        body: match (row.get::<Option<&[u8]>>("answer_body")?, row.get::<Option<i32>>("answer_length")?) {
            (Some(bytes), Some(length)) => {
                let body = answer::unpack(row.get("answer_coding")?, bytes, length);
                AnswerBody::Kept(body.ok_or("answer_body")?)
            }
            (None, None) => AnswerBody::NotKept,
            (Some(_), None) | (None, Some(_)) => return Err("answer_length"),
        },
    })
}

/// A row that a claim supersedes, as `over` stores it.
#[derive(Serialize, Deserialize)]
struct Over {
    origin: Origin,
    #[serde(flatten)]
    token: Token,
}

/// The rows that a claim supersedes, as `over` stores them.
pub(super) fn over_json(over: &[(Origin, Token)]) -> Value {
    over.iter().map(|(origin, token)| json!(Over { origin: origin.clone(), token: *token })).collect()
}

fn over(value: &Value) -> Result<Vec<(Origin, Token)>, Unreadable> {
    let list = Vec::<Over>::deserialize(value).map_err(|_| "over")?;
    Ok(list.into_iter().map(|Over { origin, token }| (origin, token)).collect())
}

fn digest(bytes: &[u8]) -> Result<Digest32, Unreadable> {
    Digest32::from_slice(bytes).ok_or("fingerprint")
}

/// Reads a span that the database gives in milliseconds.
pub(super) fn millis(value: i64) -> Result<Duration, Unreadable> {
    u64::try_from(value).map(Duration::from_millis).map_err(|_| "a negative span")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superseded_rows_come_back() {
        let list = vec![
            (Origin::parse("eu#1").unwrap(), Token { epoch: u64::MAX, attempt: u32::MAX }),
            (Origin::parse("us-east#4").unwrap(), Token { epoch: 1, attempt: 1 }),
        ];
        assert_eq!(over(&over_json(&list)), Ok(list));
        assert_eq!(over(&over_json(&[])), Ok(vec![]));
        for bad in [json!({}), json!([{}]), json!([{"origin": "eu", "epoch": 1, "attempt": 1}])] {
            assert_eq!(over(&bad), Err("over"), "{bad}");
        }
    }
}

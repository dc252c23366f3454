//! Keys in doubt for operators: the list, and ending an attempt by hand.
//!
//! Only the owner rules, only on an attempt that is over, and only with a name and a reason. Field
//! names are a contract: add, never rename. Bodies are not shown.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::key::{KeyStatus, cursor, row_status, word};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::NEVER_REPLAYED;
use crate::gateway::request::attempt::recover::{NotWritten, in_place_of, stand_in};
use crate::gateway::upkeep::store_gate::NOT_APPROVED;
use crate::ports::peers::{PeerError, PeerReply, Question};
use crate::ports::store::{Attempt, StoreError, Written};
use crate::ports::upkeep::{Act, ListedDoubt, Ruling, Who};
use crate::ports::{KeyStore, Peers, Ports, Upkeep};
use crate::protocol::decide::{over_in, settles_in};
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Retention;
use crate::protocol::record::{Basis, Beside, Reading, Row};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Here;

const ACT_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a reason, and of a name, at most.
pub const MOST_WORDS: usize = 1_000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DoubtStatus {
    pub tenant: String,
    /// The key itself: an operator has to name it.
    pub key: String,
    /// Moment since which it is listed, milliseconds since 1970.
    pub since_ms: i64,
    /// Its route; empty if the claim is older than routes in records.
    pub route: String,
    pub path: String,
    /// Owner of the key in the view: the region that settles or releases it.
    pub owner: Option<String>,
    pub origin: String,
    pub token: String,
    pub request_id: String,
    /// The upstream's status, if it gave one.
    pub status: Option<u16>,
    /// The beginning of what the upstream said, if it said anything.
    pub excerpt: Option<String>,
    pub attempts: u32,
    /// The rule of its claim: `park`, `probe` or `rerun N`.
    pub recovery: String,
    /// Milliseconds for which the attempt may still run and not be ruled; a release takes more.
    pub over_in_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Doubts {
    /// The region that lists: its own attempts, and those of other regions under keys that it owns.
    pub region: String,
    pub doubts: Vec<DoubtStatus>,
    pub more: bool,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Reason why an operator's act was refused. Nothing was changed, unless the reason says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No name, no reason, or an answer that cannot be given again.
    #[error("{0}")]
    Malformed(String),
    /// Another region owns the key, or no region does.
    #[error("the key's owner is {0}: ask there")]
    NotOwner(String),
    /// This region may not run the key now: it does not know yet which rows a retry would find.
    #[error("nobody may rule this key now: {0}")]
    Closed(&'static str),
    /// The key is not in doubt, but in this state.
    #[error("the key is not in doubt: it is {0}")]
    NotInDoubt(&'static str),
    /// The attempt may still be running, for so long.
    #[error("the attempt may still be running for {} s: ask again then", .0.as_millis().div_ceil(1_000))]
    Running(Duration),
    /// The key was changed between the look and the act: look again.
    #[error("the key changed meanwhile: look at it again")]
    Changed,
    /// The store failed. The error says if anything may have been written.
    #[error("{0}")]
    Store(StoreError),
}

impl<P: Ports> Gateway<P> {
    /// One page of the operator's list, after a key.
    pub async fn doubts(&self, after: Option<&KeyId>, most: u32) -> Result<Doubts, StoreError> {
        let mut found = self.store().doubts(after, most.saturating_add(1)).await?;
        let more = found.len() > most as usize;
        found.truncate(most as usize);
        let next = found.last().filter(|_| more).map(|last| cursor(&last.open.id));
        let ids: Vec<KeyId> = found.iter().map(|listed| listed.open.id.clone()).collect();
        let rows = self.store().look_up_beside(&ids).await?;
        let shown = found.into_iter().zip(rows).filter_map(|(listed, rows)| self.in_doubt_here(listed, rows));
        let view = self.view();
        let doubts = shown.map(|listed| doubt_status(&listed, view.owner(&listed.open.id))).collect();
        Ok(Doubts { region: self.settings.me.to_string(), doubts, more, next })
    }

    /// A listed key as shown. Another region's attempt must be in doubt under a key that is owned
    /// here; its remaining hold is judged here.
    fn in_doubt_here(&self, mut listed: ListedDoubt, rows: Vec<Row>) -> Option<ListedDoubt> {
        if listed.open.row.origin == self.origin {
            return Some(listed);
        }
        let is_owned = self.view().owner(&listed.open.id) == Some(&self.settings.me);
        let Reading::InDoubt(row, beside) = self.read(rows) else { return None };
        let mut open = std::iter::once(row).chain(beside.rows).filter(|_| is_owned);
        listed.open.row = open.find(|row| row.origin == listed.open.row.origin)?;
        Some(listed)
    }

    /// The region that owns a key in the view, if that is another one.
    pub fn owner_elsewhere(&self, id: &KeyId) -> Option<RegionName> {
        match self.here(id) {
            Here::Elsewhere(owner) => Some(owner),
            _ => None,
        }
    }

    /// Has another region act for an operator, by its admin API. Returns that one's status and
    /// body. An error: it refused or did not answer, and may then have acted.
    pub async fn act_at(&self, there: &RegionName, act: Question) -> Result<(u16, String), StoreError> {
        let definite = |why: String| StoreError::Definite(format!("{there} has to act: {why}"));
        match self.ports.peers().ask(there, act, ACT_WITHIN).await {
            Ok(PeerReply::Acted { status, body }) => Ok((status, body)),
            Ok(PeerReply::Refused(why)) => Err(definite(why)),
            Err(PeerError::NotSent(why)) => Err(definite(format!("it was not asked: {why}"))),
            Err(error) => Err(StoreError::Unknown(format!("{there} has to act: {error}"))),
            Ok(other) => Err(StoreError::Unknown(format!("{there} answered {other:?}"))),
        }
    }

    /// Epoch of the view that this gateway goes by.
    pub fn epoch(&self) -> u64 {
        self.view().epoch()
    }

    /// Ends an attempt in doubt by hand, and wakes waiting requests. Returns the key's new state.
    pub async fn rule(self: &Arc<Self>, id: &KeyId, act: &Act) -> Result<KeyStatus, Refusal> {
        let (row, basis) = self.may_rule(id, act).await?;
        if row.origin == self.origin {
            let attempt = Attempt { id: id.clone(), token: row.token, nonce: row.nonce };
            match self.store().rule(&attempt, act).await.map_err(Refusal::Store)? {
                Written::Done => {}
                Written::Lost => return Err(Refusal::Changed),
                Written::GateMoved => {
                    return Err(Refusal::Store(StoreError::Definite(NOT_APPROVED.to_owned())));
                }
            }
        } else {
            self.stand_in_for(id, &row, act, basis).await?;
        }
        let kind = match act.ruling {
            Ruling::Settled(_) => "settled",
            Ruling::Released => "released",
        };
        tracing::warn!(key = %id.digest(), token = %row.token, kind, "an operator ended an attempt by hand");
        if let Ok(mut found) = self.store().look_up_beside(std::slice::from_ref(id)).await {
            self.attached.wake(id, found.pop().unwrap_or_default());
        }
        self.key_status(id).await.map_err(Refusal::Store)
    }

    /// Checks a ruling without making it: its refusal as far as known, else the key as it is.
    pub async fn rehearse_rule(&self, id: &KeyId, act: &Act) -> Result<KeyStatus, Refusal> {
        self.may_rule(id, act).await?;
        self.key_status(id).await.map_err(Refusal::Store)
    }

    /// The attempt that may be ended by hand, and the basis on which another region's is.
    async fn may_rule(&self, id: &KeyId, act: &Act) -> Result<(Row, Basis), Refusal> {
        well_formed(act)?;
        match self.here(id) {
            Here::Run(_) => {}
            Here::Elsewhere(owner) => return Err(Refusal::NotOwner(owner.to_string())),
            Here::Nobody => return Err(Refusal::NotOwner("nobody".to_owned())),
            Here::Closed(closed) => return Err(Refusal::Closed(closed.reason())),
            Here::Unfit(why) => return Err(Refusal::Store(StoreError::Definite(why.reason().to_owned()))),
        }
        self.in_doubt(id, &act.ruling).await
    }

    /// The attempt of a key in doubt, if all in doubt are surely over. For "did not happen" they
    /// must have left the upstream, too.
    async fn in_doubt(&self, id: &KeyId, ruling: &Ruling) -> Result<(Row, Basis), Refusal> {
        let rows = self.store().look_up_beside(std::slice::from_ref(id)).await.map_err(Refusal::Store)?;
        let reading = self.read(rows.into_iter().next().unwrap_or_default());
        let state = word(&reading);
        let (row, beside, basis) = match reading {
            Reading::InDoubt(row, Beside { rows, basis, .. }) => (row, rows, Some(basis)),
            Reading::InProgress(row) => (row, Vec::new(), None),
            Reading::Absent | Reading::Released(..) | Reading::Settled(_) | Reading::Gone(_) => {
                return Err(Refusal::NotInDoubt(state));
            }
        };
        let rest = match ruling {
            Ruling::Settled(_) => settles_in,
            Ruling::Released => over_in,
        };
        let left = std::iter::once(&row).chain(&beside).map(rest).max().unwrap_or_default();
        let basis = basis.filter(|_| left.is_zero()).ok_or(Refusal::Running(left))?;
        Ok((row, basis))
    }

    /// Writes the ruling in the place of another region's attempt. That row does not hold its
    /// retention, so the record gets the longest of any route.
    async fn stand_in_for(&self, id: &KeyId, row: &Row, act: &Act, basis: Basis) -> Result<(), Refusal> {
        let live = self.live();
        let all = live.routes.policies();
        let policy = all.max_by_key(|policy| match policy.retention {
            Retention::For(span) => span,
            Retention::Never => Duration::MAX,
        });
        let Some(policy) = policy else { return Err(Refusal::Changed) };
        let terms = in_place_of(self, row, policy, "".into(), String::new());
        let stood = stand_in(self, id, terms, basis, &act.ruling, Some(act.by())).await;
        stood.map_err(|failed| match failed {
            NotWritten::Changed => Refusal::Changed,
            NotWritten::Store(error) => Refusal::Store(error),
        })
    }
}

pub fn signed(by: Who<'_>) -> Result<(), Refusal> {
    let malformed = |why: &str| Err(Refusal::Malformed(why.to_owned()));
    if by.reason.trim().is_empty() || by.reason.len() > MOST_WORDS {
        return malformed("say why: a reason of 1 to 1000 bytes is journalled with the act");
    }
    if by.actor.trim().is_empty() || by.actor.len() > MOST_WORDS {
        return malformed("say who: an actor of 1 to 1000 bytes is journalled with the act");
    }
    if by.reason.contains('\0') || by.actor.contains('\0') {
        return malformed("the reason and the actor cannot hold zero bytes");
    }
    Ok(())
}

/// Checks that an act has a reason and a name, and that a settled answer can be given. An error is
/// [`Refusal::Malformed`], with the missing part.
pub fn well_formed(act: &Act) -> Result<(), Refusal> {
    let malformed = |why: &str| Err(Refusal::Malformed(why.to_owned()));
    signed(act.by())?;
    let Ruling::Settled(answer) = &act.ruling else { return Ok(()) };
    if !(200..=599).contains(&answer.status) {
        return malformed("an answer's status is 200 to 599");
    }
    for (name, value) in &answer.headers {
        let named = http::HeaderName::try_from(name.as_str());
        if named.is_err() || http::HeaderValue::from_bytes(value).is_err() {
            return malformed("an answer's header is no HTTP header: a name, ':' and printable text");
        }
        if NEVER_REPLAYED.contains(&name.as_str()) {
            return Err(Refusal::Malformed(format!("no replay carries the header {name:?}: leave it out")));
        }
    }
    Ok(())
}

fn doubt_status(listed: &ListedDoubt, owner: Option<&RegionName>) -> DoubtStatus {
    let open = &listed.open;
    let shown = row_status(&open.row);
    DoubtStatus {
        tenant: open.id.tenant().to_string(),
        key: open.id.key().as_str().to_owned(),
        since_ms: listed.since.as_millis(),
        route: open.route.to_string(),
        path: open.path.clone(),
        owner: owner.map(ToString::to_string),
        origin: shown.origin,
        token: shown.token,
        request_id: shown.request_id,
        status: shown.status,
        excerpt: listed.excerpt.clone(),
        attempts: open.row.token.attempts(),
        recovery: open.row.recovery.to_string(),
        over_in_ms: over_in(&open.row).as_millis() as u64,
    }
}

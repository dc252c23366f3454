//! Views, the register's values and the gate's state as JSON documents, for stores and for peers.
//!
//! `postgres`, `wire` and the witness's file put these documents into rows, messages and bytes. A
//! ring travels as its spec and is built when it is read. That takes milliseconds, so a few built
//! rings are kept, and equal rings are one [`Arc`]. A document in any other spelling is
//! [`Malformed`]: this file must not guess.

mod rings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::rings::{RingDoc, ring_doc, ring_of};
use crate::protocol::authority::{GateState, Pending};
use crate::protocol::digest::Digest32;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::{Accepted, Acceptor, Ballot, Grant, Relies};
use crate::protocol::versions::NEXT;
use crate::protocol::view::{AcceptorId, Content, Member, Release, Retired, Standing, View};

/// Error for a document that cannot be read. It names the part, in our own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct Malformed(pub &'static str);

/// A value and its document.
pub trait Spelled: Sized {
    /// Document of the value, made of JSON types.
    type Doc: Serialize + DeserializeOwned;

    /// Writes the value as a document.
    fn doc(&self) -> Self::Doc;

    /// Reads a document.
    ///
    /// # Errors
    /// A part that no value has.
    fn from_doc(doc: Self::Doc) -> Result<Self, Malformed>;

    /// Writes the value as JSON text.
    ///
    /// # Errors
    /// Only if the text cannot be made at all.
    fn to_text(&self) -> Result<String, Malformed> {
        serde_json::to_string(&self.doc()).map_err(|_| Malformed("cannot be spelled"))
    }

    /// Reads a JSON text.
    ///
    /// # Errors
    /// Not JSON, not this document, or a part that no value has.
    fn from_text(text: &str) -> Result<Self, Malformed> {
        Self::from_doc(
            serde_json::from_str(text)
                .map_err(|_| Malformed(newer(text).unwrap_or("not such a document")))?,
        )
    }
}

/// Advice for a document of a newer program, which is refused whole. An agreed and stored value
/// would become another value if unknown members were ignored.
const NEWER: &str =
    "it is of a newer protocol version than this program speaks: run the newer onceway here, too";

/// The advice for a text that cannot be read, if it names a newer version than this program has.
pub(super) fn newer(text: &str) -> Option<&'static str> {
    // The view may be at any place in the text. An unknown member raises the question whether the
    // program is too old.
    let said = text.match_indices("\"protocol\":").filter_map(|(at, name)| {
        let digits = text[at + name.len()..].split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    });
    said.max().filter(|version| *version > u64::from(NEXT)).map(|_| NEWER)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewDoc {
    epoch: u64,
    protocol: u16,
    ring: RingDoc,
    escrow: Vec<EscrowDoc>,
    voters: Vec<VoterDoc>,
    voters_before: Vec<VoterDoc>,
    members: Vec<MemberDoc>,
    retired: Vec<RetiredDoc>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EscrowDoc {
    route: String,
    means: String,
}

impl EscrowDoc {
    fn of((route, meaning): (&Arc<str>, &Digest32)) -> Self {
        Self { route: route.to_string(), means: meaning.to_string() }
    }

    fn read(self) -> Result<(Arc<str>, Digest32), Malformed> {
        Ok((self.route.into(), digest(&self.means)?))
    }
}

impl ViewDoc {
    /// Reads the document from a JSON value.
    ///
    /// # Errors
    /// The value is not such a document, or is a newer program's.
    pub(super) fn read(value: &serde_json::Value) -> Result<Self, Malformed> {
        Self::deserialize(value).map_err(|_| Malformed(newer(&value.to_string()).unwrap_or("view")))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VoterDoc {
    name: String,
    id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberDoc {
    name: String,
    generation: u32,
    standing: StandingDoc,
    mark: u64,
    release: Option<ReleaseDoc>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum StandingDoc {
    Serving,
    Sealed { drained: bool },
    Lost { at: u64, gap: bool },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseDoc {
    base: u64,
    target: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetiredDoc {
    origin: String,
    mark: u64,
    lost: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BallotDoc {
    counter: u64,
    region: String,
    proposer: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedDoc {
    ballot: BallotDoc,
    view: ViewDoc,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantDoc {
    generation: u32,
    boot: String,
    view: ViewDoc,
    number: u64,
    ttl: Duration,
    holders: BTreeMap<u64, (u32, u64)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptorDoc {
    id: String,
    admitted: bool,
    promised: Option<BallotDoc>,
    accepted: Option<AcceptedDoc>,
    grants: Vec<(String, GrantDoc)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateDoc {
    pub view: ViewDoc,
    /// The views that must all name the region.
    pub since: Vec<ViewDoc>,
    /// The change for which it gives up keys.
    pub pending: Option<PendingDoc>,
    /// Accepted risks: region and epoch.
    pub waived: Vec<(String, u64)>,
}

/// A change for which keys were given up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingDoc {
    target: ViewDoc,
    seal: Option<u64>,
}

fn voter_docs(voters: &BTreeMap<RegionName, AcceptorId>) -> Vec<VoterDoc> {
    voters.iter().map(|(name, id)| VoterDoc { name: name.to_string(), id: acceptor_id(*id) }).collect()
}

fn voters_of(docs: &[VoterDoc]) -> Result<BTreeMap<RegionName, AcceptorId>, Malformed> {
    map(docs.iter().map(|voter| Ok((region(&voter.name)?, read_acceptor_id(&voter.id)?))), "a voter twice")
}

impl Spelled for Arc<View> {
    type Doc = ViewDoc;

    fn doc(&self) -> ViewDoc {
        let Content { epoch, protocol, ring, escrow, voters, voters_before, members, retired } =
            self.content();
        ViewDoc {
            epoch,
            protocol,
            ring: ring_doc(&ring),
            escrow: escrow.iter().map(EscrowDoc::of).collect(),
            voters: voter_docs(&voters),
            voters_before: voter_docs(&voters_before),
            members: members.iter().map(|(name, member)| member_doc(name, member)).collect(),
            retired: retired
                .iter()
                .map(|(origin, Retired { mark, lost })| RetiredDoc {
                    origin: origin.to_string(),
                    mark: *mark,
                    lost: *lost,
                })
                .collect(),
        }
    }

    fn from_doc(doc: ViewDoc) -> Result<Self, Malformed> {
        let ViewDoc { epoch, protocol, ring, escrow, voters, voters_before, members, retired } = doc;
        if protocol > NEXT {
            return Err(Malformed(NEWER));
        }
        let content = Content {
            epoch,
            protocol,
            ring: ring_of(ring)?,
            escrow: map(escrow.into_iter().map(EscrowDoc::read), "a route twice")?,
            voters: voters_of(&voters)?,
            voters_before: voters_of(&voters_before)?,
            members: map(
                members.into_iter().map(|doc| Ok((region(&doc.name)?, member(doc)?))),
                "a member twice",
            )?,
            retired: map(
                retired.into_iter().map(|doc| {
                    let origin = Origin::parse(&doc.origin).map_err(|_| Malformed("a retired origin"))?;
                    Ok((origin, Retired { mark: doc.mark, lost: doc.lost }))
                }),
                "a retired origin twice",
            )?,
        };
        Ok(Arc::new(View::from_content(content)))
    }
}

impl Spelled for Ballot {
    type Doc = BallotDoc;

    fn doc(&self) -> BallotDoc {
        BallotDoc { counter: self.counter, region: self.region.to_string(), proposer: self.proposer }
    }

    fn from_doc(doc: BallotDoc) -> Result<Self, Malformed> {
        Ok(Self { counter: doc.counter, region: region(&doc.region)?, proposer: doc.proposer })
    }
}

impl Spelled for Accepted {
    type Doc = AcceptedDoc;

    fn doc(&self) -> AcceptedDoc {
        AcceptedDoc { ballot: self.ballot.doc(), view: self.view.doc() }
    }

    fn from_doc(doc: AcceptedDoc) -> Result<Self, Malformed> {
        Ok(Self { ballot: Ballot::from_doc(doc.ballot)?, view: Spelled::from_doc(doc.view)? })
    }
}

impl Spelled for Grant {
    type Doc = GrantDoc;

    fn doc(&self) -> GrantDoc {
        let Self { generation, boot, view, number, ttl, holders } = self;
        GrantDoc {
            generation: *generation,
            boot: boot.to_string(),
            view: view.doc(),
            number: *number,
            ttl: *ttl,
            holders: holders.iter().map(|(of, relies)| (*of, (relies.starts, relies.number))).collect(),
        }
    }

    fn from_doc(doc: GrantDoc) -> Result<Self, Malformed> {
        let GrantDoc { generation, boot, view, number, ttl, holders } = doc;
        let holders =
            holders.into_iter().map(|(of, (starts, number))| (of, Relies { starts, number })).collect();
        Ok(Self { generation, boot: digest(&boot)?, view: Spelled::from_doc(view)?, number, ttl, holders })
    }
}

impl Spelled for Acceptor {
    type Doc = AcceptorDoc;

    fn doc(&self) -> AcceptorDoc {
        let Self { id, admitted, promised, accepted, grants } = self;
        AcceptorDoc {
            id: acceptor_id(*id),
            admitted: *admitted,
            promised: promised.as_ref().map(Spelled::doc),
            accepted: accepted.as_ref().map(Spelled::doc),
            grants: grants.iter().map(|(region, grant)| (region.to_string(), grant.doc())).collect(),
        }
    }

    fn from_doc(doc: AcceptorDoc) -> Result<Self, Malformed> {
        let AcceptorDoc { id, admitted, promised, accepted, grants } = doc;
        let grants = grants.into_iter().map(|(name, grant)| Ok((region(&name)?, Grant::from_doc(grant)?)));
        Ok(Self {
            id: read_acceptor_id(&id)?,
            admitted,
            promised: promised.map(Spelled::from_doc).transpose()?,
            accepted: accepted.map(Spelled::from_doc).transpose()?,
            grants: map(grants, "a grant twice")?,
        })
    }
}

impl Spelled for GateState {
    type Doc = GateDoc;

    fn doc(&self) -> GateDoc {
        let Self { view, since, pending, waived } = self;
        GateDoc {
            view: view.doc(),
            since: since.iter().map(Spelled::doc).collect(),
            pending: pending
                .as_ref()
                .map(|pending| PendingDoc { target: pending.target.doc(), seal: pending.seal }),
            waived: waived.iter().map(|(region, at)| (region.to_string(), *at)).collect(),
        }
    }

    fn from_doc(doc: GateDoc) -> Result<Self, Malformed> {
        let GateDoc { view, since, pending, waived } = doc;
        let pending = pending.map(|PendingDoc { target, seal }| {
            Ok::<_, Malformed>(Pending { target: Spelled::from_doc(target)?, seal })
        });
        let waived = waived.into_iter().map(|(name, at)| Ok((region(&name)?, at)));
        Ok(Self {
            view: Spelled::from_doc(view)?,
            since: since.into_iter().map(Spelled::from_doc).collect::<Result<_, _>>()?,
            pending: pending.transpose()?,
            waived: set(waived, "a waiver twice")?,
        })
    }
}

fn member_doc(name: &RegionName, member: &Member) -> MemberDoc {
    let Member { generation, standing, mark, release } = *member;
    MemberDoc {
        name: name.to_string(),
        generation,
        standing: match standing {
            Standing::Serving => StandingDoc::Serving,
            Standing::Sealed { drained } => StandingDoc::Sealed { drained },
            Standing::Lost { at, gap } => StandingDoc::Lost { at, gap },
        },
        mark,
        release: release.map(|Release { base, target }| ReleaseDoc { base, target: target.to_string() }),
    }
}

fn member(doc: MemberDoc) -> Result<Member, Malformed> {
    let MemberDoc { name: _, generation, standing, mark, release } = doc;
    let release = release.map(|ReleaseDoc { base, target }| Ok(Release { base, target: digest(&target)? }));
    Ok(Member {
        generation,
        standing: match standing {
            StandingDoc::Serving => Standing::Serving,
            StandingDoc::Sealed { drained } => Standing::Sealed { drained },
            StandingDoc::Lost { at, gap } => Standing::Lost { at, gap },
        },
        mark,
        release: release.transpose()?,
    })
}

pub(super) fn region(text: &str) -> Result<RegionName, Malformed> {
    RegionName::parse(text).map_err(|_| Malformed("a region's name"))
}

/// A number of 128 bits, in its one spelling.
pub(super) fn hex128(number: u128) -> String {
    format!("{number:032x}")
}

/// Reads the output of [`hex128`], and nothing else.
pub(super) fn number128(text: &str, what: &'static str) -> Result<u128, Malformed> {
    let number = u128::from_str_radix(text, 16).ok().filter(|number| hex128(*number) == text);
    number.ok_or(Malformed(what))
}

fn acceptor_id(id: AcceptorId) -> String {
    hex128(id.0)
}

pub(super) fn read_acceptor_id(text: &str) -> Result<AcceptorId, Malformed> {
    number128(text, "an acceptor's id").map(AcceptorId)
}

/// Reads 64 hex digits, in lower case: one spelling.
pub(super) fn digest(text: &str) -> Result<Digest32, Malformed> {
    let pair = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    let digest = bytes.and_then(|bytes| Digest32::from_slice(&bytes));
    digest.filter(|digest| digest.to_string() == text).ok_or(Malformed("a digest"))
}

/// Makes a map of entries that each occur once. Of two equal keys, neither could be preferred.
fn map<K: Ord, V>(
    entries: impl Iterator<Item = Result<(K, V), Malformed>>,
    twice: &'static str,
) -> Result<BTreeMap<K, V>, Malformed> {
    let mut all = BTreeMap::new();
    for entry in entries {
        let (key, value) = entry?;
        if all.insert(key, value).is_some() {
            return Err(Malformed(twice));
        }
    }
    Ok(all)
}

fn set<T: Ord>(
    entries: impl Iterator<Item = Result<T, Malformed>>,
    twice: &'static str,
) -> Result<BTreeSet<T>, Malformed> {
    Ok(map(entries.map(|entry| Ok((entry?, ()))), twice)?.into_keys().collect())
}

#[cfg(test)]
mod tests;

//! Messages to acceptors and their replies, as JSON.
//!
//! `super` puts them into questions; `adapters::views` has the documents of views and ballots. This
//! file must not know what an acceptor does.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::parts::{SpanPart, Wrong, acceptor_id, digest, hex128, region};
use crate::adapters::views::{AcceptedDoc, BallotDoc, Spelled, ViewDoc};
use crate::protocol::region::RegionName;
use crate::protocol::register::{DOES_NOT_SERVE, HELD_BY_ANOTHER_START, Message, Reply};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MessagePart {
    Read,
    Prepare { ballot: BallotDoc },
    Accept { ballot: BallotDoc, view: ViewDoc },
    Renew { region: String, boot: String, holder: u64, starts: u32, view: ViewDoc, ttl: SpanPart },
    Force { ballot: BallotDoc, view: ViewDoc },
    Found { ballot: BallotDoc, view: ViewDoc },
}

impl MessagePart {
    pub(super) fn of(message: &Message) -> Self {
        match message {
            Message::Read => Self::Read,
            Message::Prepare { ballot } => Self::Prepare { ballot: ballot.doc() },
            Message::Accept { ballot, view } => Self::Accept { ballot: ballot.doc(), view: view.doc() },
            Message::Renew { region, boot, holder, starts, view, ttl } => Self::Renew {
                region: region.to_string(),
                boot: boot.to_string(),
                holder: *holder,
                starts: *starts,
                view: view.doc(),
                ttl: SpanPart::of(*ttl),
            },
            Message::Force { ballot, view } => Self::Force { ballot: ballot.doc(), view: view.doc() },
            Message::Found { ballot, view } => Self::Found { ballot: ballot.doc(), view: view.doc() },
        }
    }

    pub(super) fn read(self) -> Result<Message, Wrong> {
        Ok(match self {
            Self::Read => Message::Read,
            Self::Prepare { ballot } => Message::Prepare { ballot: Spelled::from_doc(ballot)? },
            Self::Accept { ballot, view } => {
                Message::Accept { ballot: Spelled::from_doc(ballot)?, view: Spelled::from_doc(view)? }
            }
            Self::Renew { region: name, boot, holder, starts, view, ttl } => Message::Renew {
                region: region(&name)?,
                boot: digest(&boot)?,
                holder,
                starts,
                view: Spelled::from_doc(view)?,
                ttl: ttl.read()?,
            },
            Self::Force { ballot, view } => {
                Message::Force { ballot: Spelled::from_doc(ballot)?, view: Spelled::from_doc(view)? }
            }
            Self::Found { ballot, view } => {
                Message::Found { ballot: Spelled::from_doc(ballot)?, view: Spelled::from_doc(view)? }
            }
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReplyPart {
    NotFounded { id: String },
    OtherAcceptor { id: String },
    NotAdmitted,
    Holds { id: String, promised: Option<BallotDoc>, accepted: AcceptedDoc, running: Vec<String> },
    Promised(AcceptedDoc),
    Outbid(BallotDoc),
    Accepted,
    Blocked { region: String },
    Granted { number: u64 },
    Newer,
    NotGranted { why: String },
}

impl ReplyPart {
    pub(super) fn of(reply: &Reply) -> Self {
        match reply {
            Reply::NotFounded(id) => Self::NotFounded { id: hex128(id.0) },
            Reply::OtherAcceptor(id) => Self::OtherAcceptor { id: hex128(id.0) },
            Reply::NotAdmitted => Self::NotAdmitted,
            Reply::Holds { id, promised, accepted, running } => Self::Holds {
                id: hex128(id.0),
                promised: promised.as_ref().map(Spelled::doc),
                accepted: accepted.doc(),
                running: running.iter().map(RegionName::to_string).collect(),
            },
            Reply::Promised(accepted) => Self::Promised(accepted.doc()),
            Reply::Outbid(ballot) => Self::Outbid(ballot.doc()),
            Reply::Accepted => Self::Accepted,
            Reply::Blocked(region) => Self::Blocked { region: region.to_string() },
            Reply::Granted(number) => Self::Granted { number: *number },
            Reply::Newer => Self::Newer,
            Reply::NotGranted(why) => Self::NotGranted { why: (*why).to_owned() },
        }
    }

    pub(super) fn read(self) -> Result<Reply, Wrong> {
        Ok(match self {
            Self::NotFounded { id } => Reply::NotFounded(acceptor_id(&id)?),
            Self::OtherAcceptor { id } => Reply::OtherAcceptor(acceptor_id(&id)?),
            Self::NotAdmitted => Reply::NotAdmitted,
            Self::Holds { id, promised, accepted, running } => {
                let names: BTreeSet<RegionName> =
                    running.iter().map(|name| region(name)).collect::<Result<_, _>>()?;
                Reply::Holds {
                    id: acceptor_id(&id)?,
                    promised: promised.map(Spelled::from_doc).transpose()?,
                    accepted: Spelled::from_doc(accepted)?,
                    running: names,
                }
            }
            Self::Promised(accepted) => Reply::Promised(Spelled::from_doc(accepted)?),
            Self::Outbid(ballot) => Reply::Outbid(Spelled::from_doc(ballot)?),
            Self::Accepted => Reply::Accepted,
            Self::Blocked { region: name } => Reply::Blocked(region(&name)?),
            Self::Granted { number } => Reply::Granted(number),
            Self::Newer => Reply::Newer,
            Self::NotGranted { why } => {
                let known = [DOES_NOT_SERVE, HELD_BY_ANOTHER_START].into_iter().find(|known| *known == why);
                Reply::NotGranted(known.ok_or(Wrong("why a lease was not granted"))?)
            }
        })
    }
}

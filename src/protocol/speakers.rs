//! Permissions on the peer plane: one table for every message that a region or a witness can
//! receive (docs/protocol.md#rule-21).
//!
//! A certificate proves the sender's name; this table says which messages that sender may send. A
//! receiver asks before it handles anything. `deploy/PEERS.md` shows the table.

use std::collections::BTreeSet;

use super::region::RegionName;
use super::view::View;

worded! {
    /// The role of a message's sender, as its receiver sees it: a column of the table.
    Sender;
    /// Its word in the table, in logs and in metrics.
    word {
        /// A region in the ring of the view; before the founding, in the ring of the files.
        Region = "region",
        /// A region that the files name and the ring of the view does not: it is about to join.
        Joining = "joining",
        /// A region that left the ring, while rows of it live.
        Former = "former",
        /// A witness. It answers and never asks.
        Witness = "witness",
        /// Any other holder of a certificate of the deployment's authority.
        Stranger = "stranger",
    }
}

impl Sender {
    /// The role of `name` under `view`. `named`: the files of this process name it as a region.
    /// `witness`: they name it as a witness.
    pub fn of(name: &RegionName, view: &View, named: bool, witness: bool) -> Self {
        let member = view.members().contains_key(name);
        if view.ring().weight(name).is_some() {
            Self::Region
        } else if witness || (view.voters().contains_key(name) && !member) {
            Self::Witness
        } else if member {
            Self::Former
        } else if named {
            Self::Joining
        } else {
            Self::Stranger
        }
    }
}

/// Regions that may have to learn the view, also one that has not joined yet, or has left.
const KNOWN: &[Sender] = &[Sender::Region, Sender::Joining, Sender::Former];
/// Regions that may bring requests of clients: this process is set up to work with them.
const NAMED: &[Sender] = &[Sender::Region, Sender::Joining];
/// Regions that decide, hold keys and may read them.
const REGION: &[Sender] = &[Sender::Region];

macro_rules! messages {
    ($($message:ident $name:literal $who:ident $own:literal $about:literal)*) => {
        named! {
            "A kind of message of the peer plane: a row of the table."
            Kind $($message $name $about)*
        }

        impl Kind {
            /// The senders that may send it.
            pub fn list_senders(self) -> &'static [Sender] {
                match self { $(Self::$message => $who),* }
            }

            /// True if the region that it names must be its sender.
            pub fn is_of_its_sender(self) -> bool {
                match self { $(Self::$message => $own),* }
            }
        }
    };
}

messages! {
    Hello "hello" KNOWN false "Which versions do you speak?"
    Ping "ping" KNOWN false "How are you?"
    Forward "forward" NAMED false "Run this request of a client."
    Read "read" KNOWN false "To an acceptor: what do you hold?"
    Prepare "prepare" REGION true "To an acceptor: promise."
    Accept "accept" REGION true "To an acceptor: accept this view."
    Renew "renew" REGION true "To an acceptor: grant or renew a lease."
    Force "force" REGION true "To an acceptor: take this view, the glass is broken."
    Found "found" REGION false "To an acceptor: take the first view."
    Views "views" KNOWN false "Which views do you know?"
    Adopt "adopt" REGION false "This view was chosen."
    Release "release" REGION false "Give up what you lose by this change."
    Frontier "frontier" REGION false "What do you have of a lost store?"
    Rows "rows" REGION false "Show me rows of a store."
    Latest "latest" KNOWN true "Show me rows of mine that my store may lack."
    Lodge "lodge" REGION true "Keep this claim."
    LodgeAnswer "lodge-answer" REGION false "Keep the answer to a claim of mine."
    Void "void" REGION false "Forget a claim of mine: it was never sent."
    AcceptRisk "accept-risk" REGION false "An operator accepts the risk of a loss."
    Key "key" REGION false "Show an operator the life of a key."
    Doubts "doubts" REGION false "Show an operator your keys in doubt."
    Jobs "jobs" REGION false "Show an operator your accepted requests."
    Act "act" REGION false "An operator whom you know acts on a key or a job of yours."
}

/// The reason why a message is not heard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NotHeard {
    #[error("{0} is {role} here and may not send {kind}", role = article(*.1), kind = .2.name())]
    May(RegionName, Sender, Kind),
    #[error("{0} sent {kind} in the name of {1}", kind = .2.name())]
    InAnothersName(RegionName, RegionName, Kind),
}

fn article(sender: Sender) -> &'static str {
    match sender {
        Sender::Region => "a region of the view",
        Sender::Joining => "a region that has not joined",
        Sender::Former => "a region that left the ring",
        Sender::Witness => "a witness",
        Sender::Stranger => "no region of the deployment",
    }
}

/// True if the word of `name` about *another* region's store counts under `view`: it is in the
/// ring (docs/protocol.md#rule-21). By one number, a region that left could open what must stay
/// closed, or keep it closed for ever. The rows of one that has not joined cannot be asked for.
/// Before the founding no such word counts.
pub fn tells_of_others(name: &RegionName, view: &View) -> bool {
    view.epoch() > 0 && Sender::of(name, view, false, false) == Sender::Region
}

/// The peers whose answers approve a boot (docs/protocol.md#rule-8): those that did not leave the
/// ring, or vote still. A region that left could approve an old copy by saying that it saw nothing
/// later. Where all have left, all count: nobody else remembers this region.
pub fn vouchers(peers: &BTreeSet<RegionName>, view: &View) -> BTreeSet<RegionName> {
    let left = |name: &RegionName| Sender::of(name, view, true, false) == Sender::Former;
    let mut stayed = peers.clone();
    stayed.retain(|name| !left(name) || view.voters().contains_key(name));
    if stayed.is_empty() { peers.clone() } else { stayed }
}

/// Says whether `name`, in the role `sender`, may send the message. `of` is the region that the
/// message names as its own, if it names one.
pub fn may(
    name: &RegionName,
    sender: Sender,
    message: Kind,
    of: Option<&RegionName>,
) -> Result<(), NotHeard> {
    if !message.list_senders().contains(&sender) {
        return Err(NotHeard::May(name.clone(), sender, message));
    }
    match of.filter(|of| message.is_of_its_sender() && *of != name) {
        Some(of) => Err(NotHeard::InAnothersName(name.clone(), of.clone(), message)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

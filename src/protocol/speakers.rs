//! Who may say what on the peer plane: one table, for every message that a region or a witness can receive.
//!
//! Neighbours: `ports::peers` names the messages, `gateway::hearing` and `server::witness` ask before
//! anything is handled, and `deploy/PEERS.md` shows the table (a test compares the two). A certificate
//! says who speaks; this file says whether they may. It must not know what a message does.

use super::region::RegionName;
use super::view::View;

/// What the sender of a message is to the process that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// A region in the ring of the view in force; before the founding, in the ring of the files.
    Region,
    /// A region that the files name and the ring of the view does not: it is about to join.
    Joining,
    /// A region that left the ring, while rows of it live.
    Former,
    /// A witness. It answers and never asks.
    Witness,
    /// Anybody else with a certificate of the deployment's authority.
    Stranger,
}

impl Sender {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 5] = [Self::Region, Self::Joining, Self::Former, Self::Witness, Self::Stranger];

    /// Its word in the table, in logs and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Joining => "joining",
            Self::Former => "former",
            Self::Witness => "witness",
            Self::Stranger => "stranger",
        }
    }

    /// What `name` is under `view`. `named` says whether the files of this process name it as a
    /// region, `witness` whether they name it as a witness.
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

/// Everybody who may have to learn the view: also a region that has not joined yet, or has left.
const KNOWN: &[Sender] = &[Sender::Region, Sender::Joining, Sender::Former];
/// Who may bring requests of clients, or break the glass: whoever this process is set up to work with.
const NAMED: &[Sender] = &[Sender::Region, Sender::Joining];
/// Who decides, holds keys and may read them.
const REGION: &[Sender] = &[Sender::Region];

macro_rules! messages {
    ($($message:ident $name:literal $who:ident $own:literal $about:literal)*) => {
        /// A kind of message of the peer plane.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $about] $message,)*
        }

        impl Kind {
            /// All of them, in the order of the table's rows.
            pub const ALL: &[Kind] = &[$(Kind::$message),*];

            /// Its name in the table and in logs.
            pub fn name(self) -> &'static str {
                match self { $(Self::$message => $name),* }
            }

            /// What it says.
            pub fn about(self) -> &'static str {
                match self { $(Self::$message => $about),* }
            }

            /// Who may send it.
            pub fn who(self) -> &'static [Sender] {
                match self { $(Self::$message => $who),* }
            }

            /// Whether the region that it names must be its sender.
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
    Force "force" NAMED true "To an acceptor: take this view, the glass is broken."
    Found "found" REGION false "To an acceptor: take the first view."
    Views "views" KNOWN false "Which views do you know?"
    Adopt "adopt" REGION false "This view was chosen."
    Release "release" REGION false "Give up what you lose by this change."
    Frontier "frontier" REGION false "What do you have of a lost store?"
    Rows "rows" REGION false "Show me rows of a store."
    Lodge "lodge" REGION true "Keep this claim."
    LodgeAnswer "lodge-answer" REGION false "Keep the answer to a claim of mine."
    Void "void" REGION false "Forget a claim of mine: it was never sent."
    AcceptRisk "accept-risk" REGION false "An operator accepts the risk of a loss."
    Key "key" REGION false "Show an operator the life of a key."
}

/// Why a message is not heard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeard {
    /// Its sender may not send it.
    #[error("{name} is {} here and may not send {}", article(*sender), message.name())]
    May {
        /// Who sent it.
        name: RegionName,
        /// What it is here.
        sender: Sender,
        /// The message.
        message: Kind,
    },
    /// It speaks for another region.
    #[error("{name} sent {} in the name of {of}", message.name())]
    InAnothersName {
        /// Who sent it.
        name: RegionName,
        /// For whom it speaks.
        of: RegionName,
        /// The message.
        message: Kind,
    },
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

/// Whether `name`, which is that `sender`, may send the message. `of` is the region that the message
/// names as its own, if it names one.
///
/// # Errors
/// Why not.
pub fn may(
    name: &RegionName,
    sender: Sender,
    message: Kind,
    of: Option<&RegionName>,
) -> Result<(), NotHeard> {
    if !message.who().contains(&sender) {
        return Err(NotHeard::May { name: name.clone(), sender, message });
    }
    match of.filter(|of| message.is_of_its_sender() && *of != name) {
        Some(of) => Err(NotHeard::InAnothersName { name: name.clone(), of: of.clone(), message }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;

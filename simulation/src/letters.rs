//! Loss and delay of single kinds of letters between two regions.
//!
//! A late letter is overtaken by later ones. A caller that gives up takes its letter along.

use std::time::Duration;

use onceway::ports::peers::Question;
use onceway::protocol::named;
use onceway::protocol::register::Message;

named! {
    "A kind of letter from one region to another: every question but forwards and pings."
    Letter
    Read "read" "To an acceptor: what do you hold?"
    Prepare "prepare" "To an acceptor: promise."
    Accept "accept" "To an acceptor: accept."
    Renew "renew" "To an acceptor: grant or renew a lease."
    Found "found" "To an acceptor: take the first view, or one that breaks the glass."
    Views "views" "Which views do you know?"
    Adopt "adopt" "This view was chosen."
    Release "release" "Give up what you lose by this change."
    Frontier "frontier" "What do you have of a lost store?"
    Rows "rows" "Show me rows of a lost store, or of mine."
    Lodge "lodge" "Keep this claim, or its answer, or forget it."
    Operator "operator" "What an operator asks, and the look at one key."
}

impl Letter {
    pub(crate) fn of(question: &Question) -> Self {
        match question {
            Question::Acceptor { to: _, message } => match message {
                Message::Read => Self::Read,
                Message::Prepare { .. } => Self::Prepare,
                Message::Accept { .. } => Self::Accept,
                Message::Renew { .. } => Self::Renew,
                Message::Force { .. } | Message::Found { .. } => Self::Found,
            },
            Question::Views { .. } => Self::Views,
            Question::Adopt { .. } => Self::Adopt,
            Question::Release { .. } => Self::Release,
            Question::Frontier { .. } => Self::Frontier,
            Question::Rows { .. } | Question::Latest { .. } => Self::Rows,
            Question::Lodge(_) | Question::LodgeAnswer { .. } | Question::Void(_) => Self::Lodge,
            Question::AcceptRisk { .. }
            | Question::Key { .. }
            | Question::Doubts { .. }
            | Question::Jobs { .. }
            | Question::Act { .. } => Self::Operator,
        }
    }
}

/// The fate of a letter, before the link treats it like all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// The letter is lost: nothing arrives, nothing comes back, nothing breaks.
    Lost,
    /// The letter takes so much longer. The reply takes no longer.
    Late(Duration),
}

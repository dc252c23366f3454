//! Operators: who may look, who may act, and under which name an act is journalled.
//!
//! Named operators have a token each, of which only the digest is held. An act must not be
//! journalled under a name that only its caller claims, if the token has one.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::TokenDigest;
use crate::protocol::worded;

worded! {
    /// Rights of an operator. Each has those before it.
    Role;
    /// Its word in the operators' file.
    name {
        /// Reads everything.
        Look = "look",
        /// Acts by hand.
        Act = "act",
        /// Approves the act of another.
        Approve = "approve",
    }
}

worded! {
    /// Acts that can ask for a second person.
    Weighty;
    /// Its word in `[admin] second_person`.
    name {
        /// A key in doubt, or all of a route, may run again.
        Release = "release",
        /// A takeover or a rebuild that waits for nothing.
        AcceptRisk = "accept-risk",
        /// The register goes on without a majority.
        BreakGlass = "break-glass",
    }
}

/// One person, or one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The name in the journal.
    pub name: String,
    /// The rights.
    pub role: Role,
}

/// All whom an admin listener answers. Without any it answers every request of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operators {
    /// Digest of the token that all share.
    pub shared: Option<TokenDigest>,
    /// The named ones. A person may have several tokens.
    pub named: BTreeMap<TokenDigest, Operator>,
    /// Acts that a second person has to approve.
    pub second_person: BTreeSet<Weighty>,
}

impl Operator {
    /// True if the operator may approve the act of another.
    pub fn may_approve(&self) -> bool {
        self.role >= Role::Approve
    }
}

/// The sender of a request that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visitor {
    /// Somebody on this machine; no token is required.
    Local,
    /// Somebody with the shared token.
    Shared {
        /// True if others have names.
        beside_named: bool,
    },
    /// Somebody with a token of their own.
    Named(Operator),
}

impl Operators {
    /// True if no token is required.
    pub fn is_open(&self) -> bool {
        self.shared.is_none() && self.named.is_empty()
    }

    /// The visitor who showed this token, if it is known.
    pub fn of(&self, token: &TokenDigest) -> Option<Visitor> {
        let shared = || {
            let beside_named = !self.named.is_empty();
            (self.shared.as_ref() == Some(token)).then_some(Visitor::Shared { beside_named })
        };
        self.named.get(token).cloned().map(Visitor::Named).or_else(shared)
    }

    /// The digests of all tokens.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenDigest> {
        self.shared.iter().chain(self.named.keys())
    }
}

impl Visitor {
    /// Checks that the visitor may act. An error says what would be needed.
    pub fn may_act(&self) -> Result<(), String> {
        match self {
            Self::Named(Operator { name, role }) if *role < Role::Act => Err(format!(
                "{name} may only look: an act needs the role \"act\" or \"approve\" in the operators' file"
            )),
            Self::Local | Self::Shared { .. } | Self::Named(_) => Ok(()),
        }
    }

    /// Says who approves the act of another, if the visitor may; else what would be needed.
    pub fn may_approve(&self) -> Result<&str, String> {
        match self {
            Self::Named(operator) if operator.may_approve() => Ok(&operator.name),
            Self::Named(Operator { name, .. }) => {
                Err(format!("{name} may not approve: it needs the role \"approve\" in the operators' file"))
            }
            Self::Local | Self::Shared { .. } => {
                Err("an approval needs a token with a name: use your own".to_owned())
            }
        }
    }

    /// The token's own name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Named(operator) => Some(&operator.name),
            Self::Local | Self::Shared { .. } => None,
        }
    }

    /// The name for the journal: the token's own, or the one that its caller claims.
    pub fn actor(&self, claimed: String) -> String {
        match self {
            Self::Named(operator) => operator.name.clone(),
            // Nobody claimed a name: whoever asks for one refuses the act.
            Self::Shared { beside_named: true } if !claimed.trim().is_empty() => {
                format!("{claimed} (by the shared token)")
            }
            Self::Local | Self::Shared { .. } => claimed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_operator_tokens_act_under_their_names() {
        let [look, act] = [Role::Look, Role::Act].map(|role| Operator { name: "ann".to_owned(), role });
        let mut known = Operators::default();
        assert!(known.is_open() && known.of(&[1; 32]).is_none());
        known.shared = Some([1; 32]);
        let shared = known.of(&[1; 32]).unwrap();
        assert_eq!(shared.actor("bob".to_owned()), "bob", "nobody has a name");
        known.named = [([2; 32], look), ([3; 32], act)].into();
        let of = |byte| known.of(&[byte; 32]).unwrap();
        assert_eq!(of(1).actor("bob".to_owned()), "bob (by the shared token)");
        assert_eq!((of(1).actor(" ".to_owned()), of(1).may_act()), (" ".to_owned(), Ok(())));
        assert_eq!((of(3).actor("bob".to_owned()), of(3).may_act()), ("ann".to_owned(), Ok(())));
        assert!(of(2).may_act().unwrap_err().contains("ann may only look"));
        assert!(known.of(&[4; 32]).is_none() && known.tokens().count() == 3);
    }
}

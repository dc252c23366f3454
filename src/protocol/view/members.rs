//! The parts of a view: a region's standing and marks, a store that was replaced, a voter's id; and
//! its maps as they are written, a list with an entry for each key. A view would become another one
//! if unknown members were ignored, so none may be.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::digest::Digest32;
use super::super::region::{Origin, RegionName};
use super::super::written::{Form, as_text, hex128, number128};

/// The state of one region, as the view says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Standing {
    /// May own arcs.
    Serving,
    /// Complete, owns nothing.
    Sealed {
        /// An operator asked for this, and has to ask for the return.
        drained: bool,
    },
    /// Owns nothing since that epoch; its last rows may be missing elsewhere.
    Lost {
        /// The epoch that declared it lost.
        at: u64,
        /// Rows are known to be missing: no survivor has applied its last seal. Then no window
        /// suffices, only an operator opens (docs/protocol.md#rule-30).
        gap: bool,
    },
}

impl Standing {
    /// True if it may own arcs.
    pub fn is_serving(self) -> bool {
        self == Self::Serving
    }
}

/// The consent of a region to lose keys by one change: an old report can serve no later proposal
/// (docs/protocol.md#rule-25).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The epoch of the view that was changed.
    pub base: u64,
    /// [`super::View::placement`] of the view for which it was given.
    pub target: Digest32,
}

/// One region in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Generation of its store, and so of its origin: a rebuilt store gets the next one
    /// (docs/protocol.md#rule-36).
    pub generation: u32,
    /// Its standing.
    pub standing: Standing,
    /// Its mark: the heartbeat that a region which gains arcs must have applied. Serving and
    /// Sealed: its last seal, 0 before the first. Lost: its frontier, the highest heartbeat that
    /// any surviving region had applied (docs/protocol.md#rule-33).
    pub mark: u64,
    /// The release of its last seal.
    pub release: Option<Release>,
}

impl Member {
    /// A region with an empty store.
    pub(in super::super) fn new(generation: u32, standing: Standing) -> Self {
        Self { generation, standing, mark: 0, release: None }
    }
}

/// A store that was replaced: its rows live on in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The heartbeat that a region which gains arcs must have applied or imported: its last seal,
    /// or its frontier if it was lost.
    pub mark: u64,
    /// The epoch that declared it lost, if it was replaced without having sealed. Rows of it that
    /// had not arrived anywhere never will. No region waits for them: its replacer accepted so.
    pub lost: Option<u64>,
}

/// The id of an acceptor, drawn when it is made: one that was made anew is another, and no voter
/// until it is admitted (docs/protocol.md#rule-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AcceptorId(pub u128);

as_text! {
    AcceptorId, "an acceptor's id": id => hex128(id.0), text => number128(text).map(Self);
}

/// Declares an entry of a list: the key and the members of its value.
macro_rules! entry {
    ($entry:ident: $key:ident: $of:ty => $value:ty, $read:pat => { $($member:ident: $type:ty),* } => $make:expr) => {
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $entry {
            $key: $of,
            $($member: $type,)*
        }

        impl Form<($of, $value)> for $entry {
            fn of(($key, value): &($of, $value)) -> Self {
                let $read = *value;
                Self { $key: $key.clone(), $($member,)* }
            }

            fn value(self) -> Result<($of, $value), &'static str> {
                let Self { $key, $($member,)* } = self;
                Ok(($key, $make))
            }
        }
    };
}

entry!(Voter: name: RegionName => AcceptorId, id => { id: AcceptorId } => id);
entry!(EscrowEntry: route: Arc<str> => Digest32, means => { means: Digest32 } => means);
entry!(RetiredEntry: origin: Origin => Retired, Retired { mark, lost } => { mark: u64, lost: Option<u64> }
    => Retired { mark, lost });
entry!(MemberEntry: name: RegionName => Member, Member { generation, standing, mark, release }
    => { generation: u32, standing: Standing, mark: u64, release: Option<Release> }
    => Member { generation, standing, mark, release });

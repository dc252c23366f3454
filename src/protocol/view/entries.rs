//! The lists of a view as it is written: its maps, an entry for each key.
//!
//! A view would become another one if unknown members were ignored, so none may be.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::digest::Digest32;
use super::super::region::{Origin, RegionName};
use super::super::written::Entry;
use super::members::{AcceptorId, Member, Release, Retired, Standing};

/// Declares an entry of a list: the key and the members of its value.
macro_rules! entry {
    ($entry:ident: $key:ident: $of:ty => $value:ty, $read:pat => { $($member:ident: $type:ty),* } => $make:expr) => {
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $entry {
            $key: $of,
            $($member: $type,)*
        }

        impl Entry<$of, $value> for $entry {
            fn of($key: &$of, value: &$value) -> Self {
                let $read = *value;
                Self { $key: $key.clone(), $($member,)* }
            }

            fn parts(self) -> ($of, $value) {
                let Self { $key, $($member,)* } = self;
                ($key, $make)
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

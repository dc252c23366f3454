//! Views as they are written: by their content, whose maps are lists.
//!
//! A view is agreed and stored, and would become another view if unknown members were ignored. So
//! one of a newer protocol version is refused whole. This file must not change a view.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::written::{Entry, malformed};
use super::{
    AcceptorId, Content, Digest32, LONGEST_LEASE, Member, Origin, RegionName, Release, Retired, Standing,
    View,
};
use crate::versions::NEXT;

impl Deref for View {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

impl From<View> for Content {
    fn from(view: View) -> Self {
        view.content
    }
}

impl TryFrom<Content> for View {
    type Error = serde::de::value::Error;

    fn try_from(content: Content) -> Result<Self, Self::Error> {
        if content.protocol > NEXT {
            return Err(malformed("a view of a newer protocol version"));
        }
        if content.longest_lease > LONGEST_LEASE {
            return Err(malformed("a lease"));
        }
        Ok(Self::from_content(content))
    }
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

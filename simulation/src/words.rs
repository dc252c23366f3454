//! Shared texts: a key, a moment since clients began to ask, a list, and the names of kinds.
//!
//! Readers find a thing of a story in a breach by them, and the other way round.

use std::time::Duration;

use onceway::protocol::key::KeyId;

/// An enum of kinds, each with its name in scenarios, stories and results. A name never changes.
macro_rules! named {
    ($about_all:literal $of:ident $($kind:ident $name:literal $about:literal)*) => {
        #[doc = $about_all]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $of {
            $(#[doc = $about] $kind,)*
        }

        impl $of {
            /// All kinds.
            pub const ALL: &[$of] = &[$($of::$kind),*];

            /// The name that people read and write.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }

            /// A description, in a line.
            pub fn about(self) -> &'static str {
                match self { $(Self::$kind => $about),* }
            }
        }
    };
}
pub(crate) use named;

/// A key by its tenant and its name.
pub fn key(id: &KeyId) -> String {
    format!("{}/{}", id.tenant(), id.key().as_str())
}

/// Seconds since clients began at `zero`, with microseconds; earlier moments have a minus.
pub fn moment(at: Duration, zero: Duration) -> String {
    let (sign, span) = if at >= zero { ("", at - zero) } else { ("-", zero - at) };
    format!("{sign}{}.{:06}", span.as_secs(), span.subsec_micros())
}

/// The texts of all of these, with this between them.
pub(crate) fn joined<T: ToString>(all: impl IntoIterator<Item = T>, between: &str) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(between)
}

//! The protocol: facts and their consequences, as plain values and total functions.
//!
//! `gateway` asks (for example [`decide`]) and performs; `ports` carries the values to and from the
//! world. Code here must not be asynchronous, touch the world, read a clock, draw a random number
//! or log. Every enum is matched without a wildcard. `docs/glossary.md` names the type of each
//! word, and `docs/protocol.md` has the rules.

/// Shows values by their one spelling in debug texts, too.
macro_rules! shown_as_displayed {
    ($($value:ty),*) => {
        $(impl std::fmt::Debug for $value {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, out)
            }
        })*
    };
}

shown_as_displayed!(key::Tenant, key::KeyDigest, region::RegionName, region::Origin, digest::Digest32);
shown_as_displayed!(record::RequestId);

/// Declares an enum, each of whose variants has one word.
#[doc(hidden)]
#[macro_export]
macro_rules! worded {
    (
        $(#[$about:meta])* $name:ident;
        $(#[$says:meta])* $word:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them, in their order.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            $(#[$says])*
            pub const fn $word(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

/// Declares an enum of kinds, each with its name and a description in a line. A name never changes:
/// people read and write it.
#[macro_export]
macro_rules! named {
    ($about_all:literal $of:ident $($kind:ident $name:literal $about:literal)*) => {
        $crate::worded! {
            #[doc = $about_all]
            $of;
            /// The name that people read and write.
            name { $(#[doc = $about] $kind = $name,)* }
        }

        impl $of {
            /// A description, in a line.
            pub fn about(self) -> &'static str {
                match self { $(Self::$kind => $about),* }
            }
        }
    };
}

pub mod authority;
pub mod bounds;
pub mod change;
pub mod confirm;
pub mod decide;
pub mod digest;
pub mod double;
pub mod escrow;
#[cfg(any(test, feature = "plant"))]
pub mod examples;
pub mod fingerprint;
pub mod generator;
pub mod grants;
pub mod health;
pub mod job;
pub mod key;
pub mod key_policy;
pub mod lag;
pub mod lease;
pub mod lifetime;
pub mod observed;
pub mod opening;
pub mod outcome;
mod placement_score;
pub mod plant;
pub mod record;
pub mod region;
pub mod register;
pub mod ring;
pub mod ring_spec;
pub mod round;
pub mod snapshot;
pub mod speakers;
pub mod time;
pub mod versions;
pub mod view;
pub mod window;
pub mod written;

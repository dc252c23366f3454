//! The protocol: what is true and what follows from it, as plain values and total functions.
//!
//! Neighbours: `ports` carries these values to and from the world, `gateway` asks [`decide`] and performs. Nothing here is
//! asynchronous, touches the world, reads a clock, draws a random number or logs; every enum is matched without a wildcard.
//!
//! The glossary, as links: a *key* is a [`key::KeyId`]; its *fingerprint* a
//! [`fingerprint::Fingerprint`]; the stored row a [`record::Row`], and what all rows say together a
//! [`record::Reading`]; an attempt's *token* a [`record::Token`]; the right to send a
//! [`hold::SendBy`]; the *recovery* of a route a [`decide::Recovery`]; what a request does next a
//! [`decide::Verdict`]; what a status means an [`outcome::Outcome`]; the *ring* a [`ring::Ring`] of
//! *arcs*; the *view* a [`view::View`], which names the *owner*; the *observed lag* comes from a
//! [`lag::LagMeter`]; a database clock that stepped is noticed by a [`suspect::ClockWatch`], and
//! what may be forgotten by it says a [`forget::MayForget`]. The view is agreed by
//! [`register::Acceptor`]s and a [`round::Round`], changed by a [`change::Change`]; a region's
//! *lease* is a [`lease::Lease`], its *gate* an [`authority::GateState`]; *marks* stand in [`view::Member`], the *window* is a
//! [`window::Window`], what keeps a gate closed an [`opening::Hindrance`], what *escrow* proves [`escrow::proves_absence`]; a sick upstream a
//! [`health::Health`]; a key that ran twice a [`double::Double`]; which versions of all this a process speaks are [`versions::Versions`], and who may say what to whom stands in
//! [`speakers`], how far ahead a peer's numbers may be in [`bounds`], and which views that peers tell count in [`confirm`].

pub mod authority;
pub mod bounds;
pub mod change;
pub mod confirm;
pub mod decide;
pub mod digest;
pub mod double;
pub mod escrow;
#[cfg(test)]
mod example_tests;
pub mod fingerprint;
pub mod forget;
pub mod generator;
pub mod grants;
pub mod health;
pub mod hold;
pub mod job;
pub mod key;
pub mod key_policy;
pub mod lag;
pub mod lease;
pub mod lifetime;
pub mod opening;
pub mod outcome;
mod placement_score;
pub mod plant;
pub mod record;
pub mod region;
pub mod register;
pub mod ring;
mod ring_check;
pub mod round;
pub mod speakers;
pub mod suspect;
pub mod time;
pub mod versions;
pub mod view;
pub mod window;

//! Access: signed tokens rule by rule, files of credentials that change while a gateway runs, the
//! trusted front's door.
//!
//! `tests/suites/config.rs` holds the mistakes in the files.

mod served;
mod signing;
mod tokens;

//! Who may ask: signed tokens rule by rule, files of credentials that change while a gateway runs, the trusted front's door.
//!
//! Neighbours: `tests/suites/config.rs` holds the mistakes in the files. Everything goes through public doors.

mod served;
mod signing;
mod tokens;

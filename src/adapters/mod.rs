//! FLOOR 3, the adapters: the real world behind the ports.
//!
//! Neighbours: `ports` says what each must do, `server` and `cli` put them together. An adapter translates and bounds its own
//! time; it must not decide what anything means, and must not know another adapter.

pub mod postgres;

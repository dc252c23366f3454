//! Random messages between regions and configurations: no panic, and never a guess.
//!
//! Each target takes known-interesting texts first, then changes them at random for
//! `ONCEWAY_FUZZ_SECONDS` (3 by default). It compares the result with a second reading, by our own
//! encoder. Texts of former faults are kept. The unit tests of `protocol::key` and
//! `gateway::canonical` draw headers and bodies. It must not fuzz through sockets: `net/` does.

mod asking;
mod configuration;
mod mix;
mod wire;

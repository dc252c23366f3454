//! Random key headers, JSON bodies, messages between regions and configurations: no panic, and
//! never a guess.
//!
//! Each target takes known-interesting texts first, then changes them at random for
//! `ONCEWAY_FUZZ_SECONDS` (3 by default). It compares the result with a second
//! reading: another library's, or our own encoder. Texts of former faults are kept. It must not
//! fuzz through sockets: `net/` does.

mod asking;
mod configuration;
mod header;
mod json;
mod mix;
mod wire;

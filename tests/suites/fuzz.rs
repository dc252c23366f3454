//! Whatever stands in a key header, a JSON body, a message between regions or a configuration: no panic, and never a guess.
//!
//! Each target takes known-interesting texts first, then changes them at random for `ONCEWAY_FUZZ_SECONDS` (1 by default, 60 in
//! `.ci/run`), and holds the result against a second reading: another library's, or our own way back. What once was a fault is
//! kept among the texts. It must not fuzz through sockets: `net/` does.

mod asking;
mod configuration;
mod header;
mod json;
mod mix;
mod wire;

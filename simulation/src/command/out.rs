//! What commands print: lines on standard output.
//!
//! Neighbours: every command of this folder uses [`say!`]. It must not end the process: a reader that has left, such as `| head`, is no failure, and
//! the exit code still says what was found.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};

/// Prints one line, like `println!`, and goes on where nobody reads any more.
macro_rules! say {
    () => {
        $crate::command::out::line(format_args!(""))
    };
    ($($text:tt)*) => {
        $crate::command::out::line(format_args!($($text)*))
    };
}
pub(super) use say;

/// Writes one line.
///
/// # Panics
/// If standard output cannot be written for another reason than that nobody reads it: a full disk must not pass for a result.
pub fn line(text: Arguments<'_>) {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => panic!("cannot write to standard output: {error}"),
    }
}

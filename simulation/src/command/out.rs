//! Output of commands: lines on standard output.
//!
//! Every command of this folder prints with [`say!`]. It must not end the process if its reader has
//! left, such as `| head`. That is no failure, and the exit code still reports the result.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};

/// Prints one line, like `println!`, and goes on if the reader has left.
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
/// If standard output cannot be written for another reason than a reader that has left: a full disk
/// must not pass for a result.
pub fn line(text: Arguments<'_>) {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => panic!("cannot write to standard output: {error}"),
    }
}

//! The process of a command: its standard output and error, and a runtime for futures.
//!
//! Every command writes here, and `failure` has its exit codes.

use std::io::{ErrorKind, Write};

use serde_json::Value;

use super::failure::Failure;

/// Writes a line to stderr. A failed write is ignored: the exit code says the same.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Writes to stdout. A reader that has left (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(|_| ())
}

/// Writes JSON for a program, or the text for a person.
pub fn tell(as_json: bool, said: &Value, text: &str) -> Result<(), Failure> {
    if as_json { print(&format!("{said}\n")) } else { print(text) }
}

/// Writes to stdout; false once the reader has left.
pub fn print_on(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Failed(format!("cannot write to stdout: {error}"))),
    }
}

/// Runs a future to its end on a runtime of its own.
pub fn block_on<T, E: Into<Failure>>(future: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(future).map_err(Into::into)
}

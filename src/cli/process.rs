//! The process of a command: its standard output and error, a runtime for futures, and its end.
//!
//! Every command returns a [`Failure`], and `super::run` shows it. The codes are one table, in
//! `onceway --help` and in docs/operate/commands.md. With `--json` the last line on stderr is one
//! object, `{"error":WORD,"exit_code":N,"message":TEXT}`, so that stdout holds answers only.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::error::ErrorKind as ClapError;
use serde_json::{Value, json};

use crate::config::Errors;

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

/// A command's failure, with the reason in words; the variant decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// Tried and failed, or found a case that it looks for: exit code 1.
    Failed(String),
    /// Wrong arguments or configuration, and nothing was tried: exit code 2.
    Bad(String),
    /// Begun and not complete, or not possible yet, or lists something: exit code 3.
    Incomplete(String),
    /// A loop of the gateway died, and the process left: exit code 4.
    Died(String),
}

impl Failure {
    /// The exit code, the word for it in JSON, and the reason.
    fn parts(&self) -> (u8, &'static str, &str) {
        match self {
            Self::Failed(why) => (1, "failed", why),
            Self::Bad(why) => (2, "wrong", why),
            Self::Incomplete(why) => (3, "incomplete", why),
            Self::Died(why) => (4, "died", why),
        }
    }

    /// Tells the failure as the last line of stderr, and returns the exit code.
    pub fn end(&self, as_json: bool) -> ExitCode {
        complain(&self.render(as_json));
        ExitCode::from(self.parts().0)
    }

    pub fn render(&self, as_json: bool) -> String {
        let (code, word, why) = self.parts();
        match as_json {
            true => json!({ "error": word, "exit_code": code, "message": why }).to_string(),
            false => format!("onceway: {why}"),
        }
    }
}

/// Any other error, with its causes.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(format!("{:#}", error.into()))
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        let count = errors.0.len();
        let things = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
        Self::Bad(format!("{things} in the configuration:\n{errors}"))
    }
}

/// Arguments that cannot be read, if they ask for JSON. Help and versions are answers, not
/// failures.
pub fn misread(error: &clap::Error) -> Option<Failure> {
    let asked = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    let is_answer = matches!(error.kind(), ClapError::DisplayHelp | ClapError::DisplayVersion);
    let text = error.to_string();
    let why = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    (asked && !is_answer).then(|| Failure::Bad(why.to_owned()))
}

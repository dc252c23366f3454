//! Failures of a command: an exit code, and the reason in words or as JSON.
//!
//! Every command returns a [`Failure`], and `super::run` shows it. The codes are one table, in
//! `onceway --help` and in docs/operate/commands.md. With `--json` the last line on stderr is one
//! object, `{"error":WORD,"exit_code":N,"message":TEXT}`, so that stdout holds answers and nothing
//! else.

use clap::error::ErrorKind;
use serde_json::json;

use crate::config::Errors;

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

    pub fn code(&self) -> u8 {
        self.parts().0
    }

    /// The text for stderr.
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
    let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let text = error.to_string();
    let why = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    (asked && !is_answer).then(|| Failure::Bad(why.to_owned()))
}

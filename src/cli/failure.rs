//! How a command that did not end well says so: an exit code, and why, in words or as JSON.
//!
//! Neighbours: every command returns a [`Failure`], `super::run` shows it. The codes are one table,
//! in `onceway --help` and in docs/operate/commands.md. With `--json` the last line on stderr is
//! one object, `{"error":WORD,"exit_code":N,"message":TEXT}`, so that stdout holds answers and
//! nothing else. It must not print anything itself.

use clap::error::ErrorKind;
use serde_json::json;

use crate::config::Errors;

/// Why a command did not end well, in words; which decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// It was tried and failed, or found what it looks for: exit code 1.
    Failed(String),
    /// The arguments or the configuration are wrong; nothing was tried: exit code 2.
    Bad(String),
    /// It was begun and is not complete, or cannot be yet, or lists something: exit code 3.
    Incomplete(String),
}

impl Failure {
    /// Whatever went wrong, with its causes.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::Failed(format!("{:#}", error.into()))
    }

    /// The exit code, the word for it in JSON, and why.
    fn parts(&self) -> (u8, &'static str, &str) {
        match self {
            Self::Failed(why) => (1, "failed", why),
            Self::Bad(why) => (2, "wrong", why),
            Self::Incomplete(why) => (3, "incomplete", why),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.parts().0
    }

    /// What is to stand on stderr.
    pub fn told(&self, as_json: bool) -> String {
        let (code, word, why) = self.parts();
        match as_json {
            true => json!({ "error": word, "exit_code": code, "message": why }).to_string(),
            false => format!("onceway: {why}"),
        }
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        let count = errors.0.len();
        let things = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
        Self::Bad(format!("{things} in the configuration:\n{errors}"))
    }
}

/// Arguments that cannot be read, where they ask for JSON; help and versions are answers, not failures.
pub fn misread(error: &clap::Error) -> Option<Failure> {
    let asked = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let text = error.to_string();
    let why = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    (asked && !is_answer).then(|| Failure::Bad(why.to_owned()))
}

//! Secrets, which no log and no message shows, and where they come from: the file itself or the environment.
//!
//! Neighbours: `region` reads them, `server` and `cli` hand them to Postgres or compare them. It must not implement `Display`.

use std::fmt;

use super::reader::{self, Section};

/// A text that must not be shown. `Debug` shows that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, for whoever must send or compare it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}

/// Looks up an environment variable; a parameter, so that tests need not touch the process's own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// In the file.
    Written(Secret),
    /// In this environment variable.
    Variable(String),
}

impl SecretSource {
    /// Reads exactly one of two keys: the secret itself, or the name of its variable. `check` must not repeat the secret.
    pub fn read(
        section: &Section<'_>,
        key: &'static str,
        variable_key: &'static str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Option<Self> {
        if !section.has(key) && !section.has(variable_key) {
            section.fail(format!(
                "{key} is missing: write {key}, or {variable_key} with the name of an environment variable that holds it"
            ));
        }
        Self::read_if_there(section, key, variable_key, check)
    }

    /// Like [`SecretSource::read`], but neither of the keys must be there.
    pub fn read_if_there(
        section: &Section<'_>,
        key: &'static str,
        variable_key: &'static str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Option<Self> {
        let written = section.optional(key, |value| {
            let text = reader::text(value)?;
            check(&text).map(|()| Self::Written(Secret::new(&text)))
        });
        let variable = section.optional(variable_key, |value| reader::text(value).map(Self::Variable));
        if section.has(key) && section.has(variable_key) {
            section.fail_at(variable_key, format!("{key} and {variable_key} are both written: keep one"));
            return None;
        }
        written.or(variable)
    }

    /// The secret itself.
    ///
    /// # Errors
    /// One line, if the variable is not set or `check` refuses what it holds.
    pub fn resolve(
        &self,
        environment: Environment<'_>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<Secret, String> {
        match self {
            Self::Written(secret) => Ok(secret.clone()),
            Self::Variable(name) => {
                let text = environment(name).ok_or_else(|| {
                    format!("the environment variable {name} is not set: set it to the secret")
                })?;
                check(&text).map_err(|why| format!("the environment variable {name} {why}"))?;
                Ok(Secret::new(&text))
            }
        }
    }
}

//! Secrets, and their sources: an environment variable or a file, never the configuration.
//!
//! No log and no message shows a secret. `server` and `cli` give them to Postgres or compare them.

use std::fmt;
use std::path::PathBuf;

use super::problems::Weight;
pub use super::problems::{Environment, Need};
use super::reader::{self, At, Section};
use crate::adapters::postgres::address::Address;

/// A text that must not be shown. `Debug` shows only that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, for code that must send or compare it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}

/// Source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The configuration: a database's address without a password.
    Written(Secret),
    /// An environment variable.
    Variable(String),
    /// A file. White space around the secret does not count.
    File(PathBuf),
}

/// Reason why a secret cannot be had, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The variable is not set, or the file cannot be read here or by this account.
    #[error("{0}")]
    Absent(String),
    /// The secret exists and cannot be right.
    #[error("{0}")]
    Wrong(String),
}

/// The keys of one secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// Key for a value that holds no secret. If there is none, the key is only refused.
    pub written: &'static str,
    /// Key for the name of an environment variable.
    pub variable: &'static str,
    /// Key for the path of a file.
    pub file: &'static str,
    /// Content of the sources, for messages.
    holds: &'static str,
    /// True for a Postgres URL: without a password it may be written in the file.
    is_url: bool,
}

impl Names {
    /// The keys of a value that is always secret.
    pub const fn secret([written, variable, file]: [&'static str; 3], holds: &'static str) -> Self {
        Self { written, variable, file, holds, is_url: false }
    }

    /// The keys of a Postgres URL.
    pub const fn url([written, variable, file]: [&'static str; 3]) -> Self {
        Self { written, variable, file, holds: "the URL", is_url: true }
    }

    /// The keys that may be written.
    fn allowed(&self) -> Vec<&'static str> {
        let all = [self.written, self.variable, self.file];
        if self.is_url { all.to_vec() } else { all[1..].to_vec() }
    }

    /// Advice to write a source instead of the secret itself.
    fn advice(&self) -> String {
        let Self { variable, file, holds, .. } = self;
        format!(
            "write {variable} with the name of an environment variable, or {file} with the path of a file, that holds {holds}"
        )
    }
}

/// A check of a secret, which must not repeat it.
type Check = fn(&str) -> Result<(), String>;

impl SecretSource {
    /// Reads exactly one of the keys.
    pub(super) fn read(section: &Section<'_>, names: &Names) -> Option<Self> {
        let refused = !names.is_url && section.stands(names.written);
        let allowed = names.allowed();
        if !refused && !allowed.iter().any(|key| section.has(key)) {
            section.fail(format!("{} is missing: {}", allowed[0], names.advice()));
        }
        Self::read_if_there(section, names)
    }

    /// Like [`SecretSource::read`], but all of the keys may be absent.
    pub(super) fn read_if_there(section: &Section<'_>, names: &Names) -> Option<Self> {
        let mut written = None;
        if names.is_url {
            written = section.optional(names.written, |value| {
                let text = reader::text(value)?;
                no_password_in_url(&text).map_err(|why| format!("{why}: {}", names.advice()))?;
                database_url(&text)?;
                Ok(Self::Written(Secret::new(&text)))
            });
        } else {
            section.refuse(names.written, format!("{} is a secret: {}", names.written, names.advice()));
        }
        let variable = section.optional(names.variable, |value| reader::text(value).map(Self::Variable));
        let file = section.optional(names.file, |value| section.path(value).map(Self::File));
        let mut there = names.allowed().into_iter().filter(|key| section.stands(key));
        if let (Some(first), Some(second)) = (there.next(), there.next()) {
            section.fail_at(second, format!("{first} and {second} are both written: keep one"));
            return None;
        }
        written.or(variable).or(file)
    }

    /// The key under which the source is written.
    pub(super) fn key(&self, names: &Names) -> &'static str {
        match self {
            Self::Written(_) => names.written,
            Self::Variable(_) => names.variable,
            Self::File(_) => names.file,
        }
    }

    /// Checks a secret that is read later. `check` must not repeat it.
    pub(super) fn later(&self, section: &Section<'_>, at: &At, check: impl Fn(&str) -> Result<(), String>) {
        if section.surroundings.need != Need::All {
            return;
        }
        match self.resolve(section.surroundings.environment, check) {
            Ok(_) => {}
            Err(Unresolved::Absent(why)) => section.problems.note(Weight::Missing, at, why),
            Err(Unresolved::Wrong(why)) => section.problems.add(at, why),
        }
    }

    /// Like [`SecretSource::needed`], but empty for others than a process that serves.
    pub(super) fn needed_to_serve(
        &self,
        section: &Section<'_>,
        names: &Names,
        check: Check,
    ) -> Option<Secret> {
        let serves = section.surroundings.need != Need::Command;
        if serves { self.needed(section, names, check) } else { Some(Secret::new("")) }
    }

    /// The secret itself, needed now. `check` must not repeat it.
    ///
    /// If it cannot be had, that is reported and the file is refused. The value then only helps to
    /// find more errors.
    pub(super) fn needed(&self, section: &Section<'_>, names: &Names, check: Check) -> Option<Secret> {
        if let Self::File(path) = self {
            section.problems.looks_at(path);
        }
        let key = self.key(names);
        match self.resolve(section.surroundings.environment, check) {
            Ok(secret) => Some(secret),
            Err(Unresolved::Absent(why)) => {
                section.note_at(Weight::Missing, key, format!("{key}: {why}"));
                Some(Secret::new(""))
            }
            Err(Unresolved::Wrong(why)) => {
                section.fail_at(key, format!("{key}: {why}"));
                None
            }
        }
    }

    /// The secret itself. Blocks if it is in a file. The error: it does not exist, or `check`
    /// refuses it.
    pub fn resolve(
        &self,
        environment: Environment<'_>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<Secret, Unresolved> {
        let (text, whence) = match self {
            Self::Written(secret) => return Ok(secret.clone()),
            Self::Variable(name) => {
                let unset = || {
                    Unresolved::Absent(format!(
                        "the environment variable {name} is not set: set it to the secret"
                    ))
                };
                (environment(name).ok_or_else(unset)?, format!("the environment variable {name}"))
            }
            Self::File(path) => {
                let shown = path.display();
                let unread = |error| Unresolved::Absent(format!("cannot read {shown}: {error}"));
                (std::fs::read_to_string(path).map_err(unread)?, shown.to_string())
            }
        };
        let text = text.trim();
        check(text).map_err(|why| Unresolved::Wrong(format!("{whence} {why}")))?;
        Ok(Secret::new(text))
    }
}

/// Refuses a Postgres URL that holds a password.
pub fn no_password_in_url(url: &str) -> Result<(), String> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let (address, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let user = address.rsplit_once('@').map_or("", |(user, _)| user);
    let named = parameters.split('&').any(|pair| pair.split('=').next().is_some_and(is_password));
    if user.contains(':') || named { Err("holds a password".to_owned()) } else { Ok(()) }
}

/// Checks a Postgres URL. It may hold a password, so no message repeats it.
pub(crate) fn database_url(text: &str) -> Result<(), String> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return text.parse::<Address>().map(drop).map_err(|why| format!("cannot be used: {why}"));
    }
    Err("must be a Postgres URL, such as \"postgres://user@host:5432/database\"".to_owned())
}

/// Refuses a libpq connection string that holds a password.
pub fn no_password_in_conninfo(conninfo: &str) -> Result<(), String> {
    // Blanks may be around the '=', and a value in quotes may hold anything, even a password.
    let keys = conninfo.split('=').filter_map(|before| before.split_whitespace().last());
    let keys: Vec<&str> = keys.collect();
    let named = keys.iter().take(keys.len().saturating_sub(1)).any(|key| is_password(key));
    if named { Err("holds a password".to_owned()) } else { Ok(()) }
}

/// `password`, or `sslpassword`, which opens a private key.
fn is_password(key: &str) -> bool {
    key.to_ascii_lowercase().ends_with("password")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_found_wherever_it_may_stand() {
        for url in [
            "postgres://a:b@h/d",
            "postgres://a:b@c@h:5432/d",
            "postgres://h/d?password=x",
            "postgres://a@h/d?sslmode=require&PASSWORD=x",
        ] {
            assert!(no_password_in_url(url).is_err(), "{url}");
        }
        for url in
            ["postgres://h:5432/d", "postgres://a@h:5432/d?sslmode=verify-full", "postgres://a@[::1]:5432/d"]
        {
            assert_eq!(no_password_in_url(url), Ok(()), "{url}");
        }
        for conninfo in
            ["password=x", "host=h password = x user=u", "host=h sslpassword=x", "host=h\tPassword='a b'"]
        {
            assert!(no_password_in_conninfo(conninfo).is_err(), "{conninfo}");
        }
        for conninfo in ["host=h user=u dbname=d", "host=h user=u passfile=/p", "host=password user=u"] {
            assert_eq!(no_password_in_conninfo(conninfo), Ok(()), "{conninfo}");
        }
    }
}

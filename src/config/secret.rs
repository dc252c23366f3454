//! Secrets, and their sources: an environment variable or a file, never the configuration.
//!
//! No log and no message shows a secret. `server` and `cli` give them to Postgres or compare them.
//! A secret must not implement `Display`, and no message may repeat one.

use std::fmt;
use std::path::{Path, PathBuf};

use super::reader::{self, At, Problems, Section};
use super::values::file;
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

/// Looks up an environment variable. It is a parameter, so that tests need not touch the process's
/// own environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Surroundings of the files that are read: the things that they name are looked for here.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The environment variables.
    pub environment: Environment<'a>,
    /// Purpose of the reading.
    pub need: Need,
}

/// Purpose for which the named things are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A process that serves. Things that only `onceway store` needs are not looked for.
    Serve,
    /// A command that asks a running gateway or makes its store. Things that only a serving process
    /// needs are not looked for either.
    Command,
    /// A check for a machine that only serves: as [`Need::All`], without the things that only
    /// `onceway store` needs.
    Gateway,
    /// A check: everything is looked for, and every named file must exist.
    All,
}

impl Surroundings<'_> {
    /// The same surroundings, for things that only `onceway store` needs.
    pub fn for_store(&self) -> Self {
        match self.need {
            Need::Gateway => Self { need: Need::Serve, ..*self },
            Need::Serve | Need::Command | Need::All => *self,
        }
    }

    /// True if named things must exist here and be right.
    pub fn checks(&self) -> bool {
        matches!(self.need, Need::Gateway | Need::All)
    }

    /// Notes a file that is read later. In a check it must exist.
    pub fn file(&self, section: &Section<'_>, key: &'static str, path: &Path) {
        section.looks_at(path);
        if self.checks()
            && let Err(error) = std::fs::read(path)
        {
            section.miss_at(key, format!("{key}: cannot read {}: {error}", path.display()));
        }
    }

    /// Checks a secret that is read later. `check` must not repeat it.
    pub fn secret(
        &self,
        source: &SecretSource,
        at: &At,
        problems: &Problems,
        check: impl Fn(&str) -> Result<(), String>,
    ) {
        if self.need != Need::All {
            return;
        }
        match source.resolve(self.environment, check) {
            Ok(_) => {}
            Err(Unresolved::Absent(why)) => problems.miss(at, why),
            Err(Unresolved::Wrong(why)) => problems.add(at, why),
        }
    }
}

/// Source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The configuration, as nothing in the text is secret: a database's address without a
    /// password.
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
pub struct Names {
    /// Key for a value that holds no secret. If no value can be written without one, the key exists
    /// only to be refused.
    pub written: &'static str,
    /// Key for the name of an environment variable.
    pub variable: &'static str,
    /// Key for the path of a file.
    pub file: &'static str,
    /// Content of the sources, for messages.
    pub holds: &'static str,
}

impl Names {
    /// Advice to write a source instead of the secret itself.
    pub fn advice(&self) -> String {
        let Self { written: _, variable, file, holds } = self;
        format!(
            "write {variable} with the name of an environment variable, or {file} with the path of a file, that holds {holds}"
        )
    }
}

/// Rules for a value in the configuration itself.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// Refuses a value that cannot be right.
    pub right: fn(&str) -> Result<(), String>,
    /// Refuses a value that is secret.
    pub open: fn(&str) -> Result<(), String>,
}

impl SecretSource {
    /// Reads exactly one of the keys.
    pub fn read(section: &Section<'_>, names: &Names, base: &Path, plain: Option<Plain>) -> Option<Self> {
        let refused = plain.is_none() && section.stands(names.written);
        let keys = plain.map(|_| names.written).into_iter().chain([names.variable, names.file]);
        if !refused && keys.filter(|key| section.has(key)).count() == 0 {
            let key = plain.map_or(names.variable, |_| names.written);
            section.fail(format!("{key} is missing: {}", names.advice()));
        }
        Self::read_if_there(section, names, base, plain)
    }

    /// Like [`SecretSource::read`], but all of the keys may be absent.
    pub fn read_if_there(
        section: &Section<'_>,
        names: &Names,
        base: &Path,
        plain: Option<Plain>,
    ) -> Option<Self> {
        let written = match plain {
            Some(plain) => section.optional(names.written, |value| {
                let text = reader::text(value)?;
                (plain.open)(&text).map_err(|why| format!("{why}: {}", names.advice()))?;
                (plain.right)(&text)?;
                Ok(Self::Written(Secret::new(&text)))
            }),
            None => {
                let advice = names.advice();
                section.refuse(names.written, format!("{} is a secret: {advice}", names.written));
                None
            }
        };
        let variable = section.optional(names.variable, |value| reader::text(value).map(Self::Variable));
        let file = section.optional(names.file, |value| file(value, base).map(Self::File));
        let plainly = plain.map(|_| names.written);
        let mut there =
            plainly.into_iter().chain([names.variable, names.file]).filter(|key| section.has(key));
        if let (Some(first), Some(second)) = (there.next(), there.next()) {
            section.fail_at(second, format!("{first} and {second} are both written: keep one"));
            return None;
        }
        written.or(variable).or(file)
    }

    /// The key under which the source is written.
    pub fn key(&self, names: &Names) -> &'static str {
        match self {
            Self::Written(_) => names.written,
            Self::Variable(_) => names.variable,
            Self::File(_) => names.file,
        }
    }

    /// Place of the source in the section from which it was read.
    pub fn at(&self, section: &Section<'_>, names: &Names) -> At {
        section.at_key(self.key(names))
    }

    /// Like [`SecretSource::needed`], but only a process that serves needs it: for others it is
    /// empty.
    pub fn needed_to_serve(
        &self,
        section: &Section<'_>,
        names: &Names,
        surroundings: &Surroundings<'_>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Option<Secret> {
        match surroundings.need {
            Need::Command => Some(Secret(String::new())),
            Need::Serve | Need::Gateway | Need::All => self.needed(section, names, surroundings, check),
        }
    }

    /// The secret itself, needed now. `check` must not repeat it.
    ///
    /// If it cannot be had, that is reported and the file is refused. The value then only helps to
    /// find more errors.
    pub fn needed(
        &self,
        section: &Section<'_>,
        names: &Names,
        surroundings: &Surroundings<'_>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Option<Secret> {
        if let Self::File(path) = self {
            section.looks_at(path);
        }
        match self.resolve(surroundings.environment, check) {
            Ok(secret) => Some(secret),
            Err(Unresolved::Absent(why)) => {
                let key = self.key(names);
                section.miss_at(key, format!("{key}: {why}"));
                Some(Secret(String::new()))
            }
            Err(Unresolved::Wrong(why)) => {
                let key = self.key(names);
                section.fail_at(key, format!("{key}: {why}"));
                None
            }
        }
    }

    /// The secret itself. Blocks if it is in a file.
    ///
    /// # Errors
    /// It does not exist, or `check` refuses it.
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

/// A Postgres URL without a password may be written in the file.
pub(super) const PLAIN_URL: Plain = Plain { right: database_url, open: no_password_in_url };

/// Refuses a libpq connection string that holds a password.
pub fn no_password_in_conninfo(conninfo: &str) -> Result<(), String> {
    // Blanks may be around the '=', and a value in quotes may hold anything: a password named
    // inside a value is refused, too.
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

//! Secrets, which no log and no message shows, and where they come from: an environment variable or a file, never the configuration.
//!
//! Neighbours: `region`, `provision` and `tokens` read them, `server` and `cli` hand them to Postgres or compare them. It must not implement
//! `Display`, and no message repeats a secret.

use std::fmt;
use std::path::{Path, PathBuf};

use super::reader::{self, At, Problems, Section};
use super::region::file;

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

/// Where the files that are read lie: what they name is looked for here.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The environment variables.
    pub environment: Environment<'a>,
    /// What for.
    pub need: Need,
}

/// Who needs what the files name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A process that serves: what only `onceway store` needs is not looked for.
    Serve,
    /// A command that asks a running gateway, or makes its store: nor is what only a process that serves needs.
    Command,
    /// A check for a machine that only serves: as [`Need::All`], but what only `onceway store` needs is not looked for.
    Gateway,
    /// A check: everything is looked for, and every file that is named must be there.
    All,
}

impl Surroundings<'_> {
    /// The same, for what only `onceway store` needs.
    pub fn for_store(&self) -> Self {
        match self.need {
            Need::Gateway => Self { need: Need::Serve, ..*self },
            Need::Serve | Need::Command | Need::All => *self,
        }
    }

    /// Whether what is named must be here, and be right.
    pub fn checks(&self) -> bool {
        matches!(self.need, Need::Gateway | Need::All)
    }

    /// A file that is read later, by whoever needs it: where everything is looked for, it must be there.
    pub fn file(&self, section: &Section<'_>, key: &'static str, path: &Path) {
        section.looks_at(path);
        if self.checks()
            && let Err(error) = std::fs::read(path)
        {
            section.miss_at(key, format!("{key}: cannot read {}: {error}", path.display()));
        }
    }

    /// A secret that is read later. `check` must not repeat it.
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

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// In the configuration, as nothing in it is secret: a database's address without a password.
    Written(Secret),
    /// In this environment variable.
    Variable(String),
    /// In this file; white space around it does not count.
    File(PathBuf),
}

/// Why a secret is not to be had, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The variable is not set, or the file cannot be read: here, or by this account.
    #[error("{0}")]
    Absent(String),
    /// It is there and cannot be right.
    #[error("{0}")]
    Wrong(String),
}

/// The keys of one secret.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// For what holds no secret; where nothing can be written without one, the key is only there to be refused.
    pub written: &'static str,
    /// For the name of an environment variable.
    pub variable: &'static str,
    /// For the path of a file.
    pub file: &'static str,
    /// What they hold, for messages.
    pub holds: &'static str,
}

impl Names {
    /// What to write instead of the secret itself.
    pub fn advice(&self) -> String {
        let Self { written: _, variable, file, holds } = self;
        format!(
            "write {variable} with the name of an environment variable, or {file} with the path of a file, that holds {holds}"
        )
    }
}

/// What may be written into the configuration itself.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// Refuses what cannot be right.
    pub right: fn(&str) -> Result<(), String>,
    /// Refuses what is secret.
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

    /// Like [`SecretSource::read`], but none of the keys must be there.
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

    /// Which of its keys it stands under.
    pub fn key(&self, names: &Names) -> &'static str {
        match self {
            Self::Written(_) => names.written,
            Self::Variable(_) => names.variable,
            Self::File(_) => names.file,
        }
    }

    /// Where it stands in the section that it was read from.
    pub fn at(&self, section: &Section<'_>, names: &Names) -> At {
        section.at_key(self.key(names))
    }

    /// Like [`SecretSource::needed`], but only a process that serves needs it: for others it is empty.
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

    /// The secret itself, needed now; `check` must not repeat it. If it is not to be had, that is reported, and the file is refused: then
    /// the value only serves to find more.
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

    /// The secret itself. Blocks, if it is in a file.
    ///
    /// # Errors
    /// It is not there, or `check` refuses it.
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

/// Refuses a libpq connection string that holds a password.
pub fn no_password_in_conninfo(conninfo: &str) -> Result<(), String> {
    // Blanks may stand around the '=', and a value in quotes may hold anything: a password named in one is refused, too.
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

//! Address of a Postgres and protection of its connections, from URLs and libpq's strings.
//!
//! TLS is chosen as in libpq, but modes that are weaker than they look are refused by name.
//! `prefer` and `allow` fall back to plain text; `verify-ca` takes any certificate of the
//! authority. `tls` reads the files. Messages must not repeat a value: it may be a password.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

pub use super::tls::wrong_authorities;
use super::tls::{self, Own, Protection};
use crate::gateway::operator::percent;

/// Address of a Postgres, our role there, and the protection of the connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(super) config: Config,
    pub(super) protection: Protection,
}

/// Reason why an address cannot be used: one line that says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadAddress(String);

pub(super) fn place(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let ports: Vec<String> = config.get_ports().iter().map(ToString::to_string).collect();
    let port = if ports.is_empty() { "5432".to_owned() } else { ports.join(",") };
    let (role, database) = (config.get_user().unwrap_or("-"), config.get_dbname().unwrap_or("-"));
    format!("role {role}, host {hosts}:{port}, database {database}")
}

const WHICH: &str =
    "verify-full with sslrootcert=PATH, or require, or disable where the network itself is trusted";

/// Reads `postgres://...` or libpq's `host=... user=... dbname=...`.
impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (config, words) = split(text)?;
        words.address(config, None)
    }
}

impl Address {
    /// The role to connect as; empty if the address names none.
    pub fn role(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// Role, host, port and database, for messages: nothing of it is secret.
    pub fn place(&self) -> String {
        place(&self.config)
    }

    /// True if the two differ in role and password at most.
    pub fn differs_only_in_login(&self, other: &Self) -> bool {
        let place = |address: &Self| {
            let database = address.config.get_dbname().unwrap_or(address.role()).to_owned();
            address.tuned(|config| {
                config.user("").password("").dbname(database);
            })
        };
        place(self) == place(other)
    }

    /// Files of certificates that the address names. A check of a configuration looks for them.
    pub fn files(&self) -> Vec<&Path> {
        let (authorities, own) = self.protection.files();
        let own = own.into_iter().flat_map(|own| [&own.certificate, &own.key]);
        authorities.into_iter().chain(own).map(PathBuf::as_path).collect()
    }

    /// Of these files our own certificate, and the authorities to trust.
    pub fn certificates(&self) -> (Option<&Path>, Option<&Path>) {
        let (authorities, own) = self.protection.files();
        (own.map(|own| &*own.certificate), authorities.map(PathBuf::as_path))
    }

    /// Faults of those files that are on this machine. Blocks.
    pub fn wrong_files(&self) -> Vec<String> {
        tls::wrong(&self.protection)
    }

    /// Reads a connection string that libpq uses on another machine, for a look from this one. The
    /// files that it names are on that machine. `authorities` is the file for `sslrootcert` on this
    /// machine; without it the path is the same.
    pub fn of_libpq(text: &str, authorities: Option<&Path>) -> Result<Self, BadAddress> {
        let (config, words) = split(text)?;
        words.address(config, authorities)
    }

    pub(super) fn tuned(&self, tune: impl FnOnce(&mut Config)) -> Self {
        let mut tuned = self.clone();
        tune(&mut tuned.config);
        tuned
    }
}

#[derive(Default)]
struct Words {
    mode: Option<String>,
    authorities: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Words {
    /// Takes a setting of TLS. `false` if the word is another setting.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, BadAddress> {
        let place = match key {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.authorities,
            "sslcert" => &mut self.certificate,
            "sslkey" => &mut self.key,
            "sslpassword" => {
                return bad(
                    "sslpassword: keep the key in a file that only its user may read, without a password",
                );
            }
            "sslcrl"
            | "sslcrldir"
            | "ssl_min_protocol_version"
            | "ssl_max_protocol_version"
            | "requiressl" => {
                let why = "is not supported: leave it out (TLS 1.2 and 1.3 are spoken, nothing older)";
                return bad(&format!("{key} {why}"));
            }
            _ => return Ok(false),
        };
        *place = Some(value.to_owned());
        Ok(true)
    }

    fn address(self, mut config: Config, authorities: Option<&Path>) -> Result<Address, BadAddress> {
        let socket = config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_)));
        let own = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(Own { certificate: absolute("sslcert", certificate)?, key: absolute("sslkey", key)? })
            }
            (Some(_), None) | (None, Some(_)) => {
                return bad("sslcert and sslkey belong together: write both");
            }
        };
        let idle = || match (&self.authorities, &own) {
            (None, None) => Ok(Protection::Plain),
            (_, _) => {
                bad("sslrootcert, sslcert and sslkey mean nothing without TLS: write sslmode=verify-full")
            }
        };
        let protection = match self.mode.as_deref() {
            Some("verify-full" | "require") if socket => {
                return bad("a Unix socket has no TLS: leave sslmode out, or write disable");
            }
            Some("verify-full") => {
                let named = self.authorities.as_deref().map(|path| absolute("sslrootcert", path));
                let here = authorities.map(|path| Ok(path.to_owned())).or(named);
                let authorities = here.unwrap_or_else(|| {
                    bad("sslmode=verify-full needs sslrootcert=PATH, the PEM file of the authorities to trust")
                })?;
                Protection::Verified { authorities, own }
            }
            Some("require") if self.authorities.is_some() => {
                return bad(
                    "sslmode=require checks no certificate, so sslrootcert has no effect: write sslmode=verify-full",
                );
            }
            Some("require") => Protection::Encrypted { own },
            Some("disable") => idle()?,
            // Default of libpq. On one machine there is nobody to protect it from.
            Some("prefer") | None if on_this_machine(&config) => idle()?,
            None => {
                let why = "sslmode is missing, for a server that is not on this machine";
                return bad(&format!("{why}: write {WHICH}"));
            }
            Some(said @ ("prefer" | "allow")) => {
                let why = format!("sslmode={said} falls back to plain text wherever somebody wants that");
                return bad(&format!("{why}: write {WHICH}"));
            }
            Some("verify-ca") => {
                return bad(
                    "sslmode=verify-ca takes any server that the authority signed for: write verify-full",
                );
            }
            Some(_) => return bad(&format!("there is no such sslmode: write {WHICH}")),
        };
        config.ssl_mode(match protection {
            Protection::Plain => SslMode::Disable,
            Protection::Encrypted { .. } | Protection::Verified { .. } => SslMode::Require,
        });
        Ok(Address { config, protection })
    }
}

fn on_this_machine(config: &Config) -> bool {
    if !config.get_hostaddrs().is_empty() {
        return config.get_hostaddrs().iter().all(IpAddr::is_loopback);
    }
    let is_here = |name: &str| name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || is_here(name),
    })
}

fn absolute(key: &str, path: &str) -> Result<PathBuf, BadAddress> {
    if key == "sslrootcert" && path == "system" {
        return bad(
            "sslrootcert=system is not supported: name the PEM file of the authorities, such as /etc/ssl/certs/ca-certificates.crt",
        );
    }
    if path.starts_with('/') { Ok(path.into()) } else { bad(&format!("{key} must be an absolute path")) }
}

fn bad<T>(why: &str) -> Result<T, BadAddress> {
    Err(BadAddress(why.to_owned()))
}

/// Splits a text into the part that our client reads itself, and the TLS settings.
fn split(text: &str) -> Result<(Config, Words), BadAddress> {
    let mut words = Words::default();
    let split = if text.contains("://") { split_url } else { split_pairs };
    let rest = split(text, &mut words)?;
    // The client's own error quotes names and values.
    let config = rest.parse().or_else(|_| {
        bad("cannot be read: write postgres://user:password@host:port/database, or host=... port=5432 user=... dbname=...")
    })?;
    Ok((config, words))
}

fn split_url(text: &str, words: &mut Words) -> Result<String, BadAddress> {
    let after_user = text.find('@').unwrap_or(0);
    let Some(question) = text[after_user..].find('?').map(|at| after_user + at) else {
        return Ok(text.to_owned());
    };
    let (start, query) = (&text[..question], &text[question + 1..]);
    let mut kept = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !words.take(&percent::decode(key), &percent::decode(value))? {
            kept.push(pair);
        }
    }
    Ok(if kept.is_empty() { start.to_owned() } else { format!("{start}?{}", kept.join("&")) })
}

/// Reads pairs as libpq does: blanks around the '=', quotes, a backslash before any character.
fn split_pairs(text: &str, words: &mut Words) -> Result<String, BadAddress> {
    let mut kept = String::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            return bad("cannot be read: a word without '='");
        };
        let (value, after) = value(after.trim_start())?;
        let key = key.trim_end();
        rest = after.trim_start();
        if words.take(key, &value)? {
            continue;
        }
        // The name of the same setting in our client.
        let key = if key == "keepalives_count" { "keepalives_retries" } else { key };
        let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
        kept.push_str(&format!("{key}='{quoted}' "));
    }
    Ok(kept)
}

/// The value at the start, and the rest of the text.
fn value(text: &str) -> Result<(String, &str), BadAddress> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut letters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            _ if !quoted && letter.is_whitespace() => return Ok((value, &text[at..])),
            _ => value.push(letter),
        }
    }
    if quoted { bad("cannot be read: a quote is not closed") } else { Ok((value, "")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Address>().err().unwrap_or_else(|| panic!("{text} is taken")).to_string()
    }

    #[test]
    fn tls_is_asked_for_in_so_many_words() {
        let taken = |text: &str| text.parse::<Address>().unwrap_or_else(|why| panic!("{text}: {why}"));
        let verified = taken(
            "postgres://u:p%3F@db.internal/d?application_name=a&sslrootcert=%2Fetc%2Fca.pem&sslmode=verify-full",
        );
        assert!(verified.protection == Protection::Verified { authorities: "/etc/ca.pem".into(), own: None });
        assert_eq!(verified.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(verified.config.get_application_name(), Some("a"));
        assert_eq!(verified.config.get_password(), Some("p?".as_bytes()));
        let quoted = taken(
            r"host = db user='a b' password='it\'s=\\' dbname=d sslmode = require sslcert=/c sslkey=/k keepalives_count=3",
        );
        let own = Some(Own { certificate: "/c".into(), key: "/k".into() });
        assert!(quoted.protection == Protection::Encrypted { own });
        assert_eq!(quoted.config.get_user(), Some("a b"));
        assert_eq!(quoted.config.get_password(), Some(r"it's=\".as_bytes()));
        for plain in [
            "postgres://u@127.0.0.1/d",
            "postgres://u@[::1]:5432/d?sslmode=prefer",
            "host=localhost user=u",
            "host=/run/postgresql user=u",
            "host=db hostaddr=127.0.0.1 user=u",
            "postgres://u@db.internal/d?sslmode=disable",
        ] {
            assert!(taken(plain).protection == Protection::Plain, "{plain}");
        }
    }

    #[test]
    fn weak_tls_settings_are_refused_by_name() {
        for (text, why) in [
            ("postgres://u:hunter2@db/d", "sslmode is missing"),
            ("host=db hostaddr=10.0.0.1 user=u", "sslmode is missing"),
            ("postgres://u@127.0.0.1,db/d", "sslmode is missing"),
            ("postgres://u@db/d?sslmode=prefer", "sslmode=prefer falls back"),
            ("postgres://u@127.0.0.1/d?sslmode=allow", "sslmode=allow falls back"),
            ("host=db user=u sslmode=verify-ca sslrootcert=/ca", "verify-full"),
            ("host=db user=u sslmode=verify-full", "needs sslrootcert"),
            ("host=db user=u sslmode=verify-full sslrootcert=ca.pem", "absolute path"),
            ("host=db user=u sslmode=verify-full sslrootcert=system", "sslrootcert=system"),
            ("host=db user=u sslmode=require sslrootcert=/ca", "no effect"),
            ("host=localhost user=u sslrootcert=/ca", "nothing without TLS"),
            ("host=db user=u sslmode=require sslcert=/c", "belong together"),
            ("host=db user=u sslmode=require sslcrl=/c", "sslcrl is not supported"),
            ("host=db user=u sslmode=hunter2", "no such sslmode"),
            ("host=/run/postgresql user=u sslmode=require", "Unix socket"),
            ("host=db user=u sslmode=disable hunter2", "cannot be read"),
            ("host=db password='hunter2", "not closed"),
            ("host=localhost hunter2=1", "cannot be read"),
        ] {
            let why_not = refused(text);
            assert!(
                why_not.contains(why) && !why_not.contains("hunter2") && !why_not.contains('\n'),
                "{text}: {why_not}"
            );
        }
    }

    #[test]
    fn another_login_is_told_from_another_place() {
        let is_place = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse::<Address>().unwrap());
            one.differs_only_in_login(&other)
        };
        let one = "postgres://a:p@127.0.0.1:5432/d?sslmode=disable&target_session_attrs=read-write";
        for same in ["a:q@", "b:p@", "b@"] {
            assert!(is_place(one, &one.replace("a:p@", same)), "{same}");
        }
        for (part, other) in [
            ("127.0.0.1", "127.0.0.2"),
            ("5432", "5433"),
            ("/d", "/e"),
            ("disable", "require"),
            ("-write", "-only"),
        ] {
            assert!(!is_place(one, &one.replace(part, other)), "{other}");
        }
        // Without a database the role's name is that of the database.
        assert!(!is_place("host=localhost user=a", "host=localhost user=b"));
        assert!(is_place("host=localhost user=a", "host=localhost user=b dbname=a"));
    }

    #[test]
    fn a_look_at_another_machine_has_its_own_authorities() {
        let text = "host=db user=u sslmode=verify-full sslrootcert=/there.pem";
        let here = Address::of_libpq(text, Some(Path::new("/here.pem"))).unwrap();
        assert!(here.protection == Protection::Verified { authorities: "/here.pem".into(), own: None });
        let system =
            Address::of_libpq("host=db sslmode=verify-full sslrootcert=system", Some(Path::new("/here.pem")));
        assert!(system.is_ok_and(|address| address.protection == here.protection));
    }
}

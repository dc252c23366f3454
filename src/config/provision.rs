//! `[provision]` of a region file: settings that only `onceway store init` needs.
//!
//! `region` reads the rest of the file; `cli::store` looks the secrets up when it needs them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::reader::{self, Section};
use super::secret::{Names, Need, Secret, SecretSource, database_url, no_password_in_conninfo};
use super::values::{ByRegion, by_region};
use crate::adapters::postgres::address::{self, Address};
use crate::protocol::region::RegionName;

const ADMIN_URL: Names = Names::url(["admin_url", "admin_url_env", "admin_url_file"]);
const GATEWAY_PASSWORD: Names =
    Names::secret(["gateway_password", "gateway_password_env", "gateway_password_file"], "the password");
const REPLICATION_PASSWORD: Names = Names::secret(
    ["replication_password", "replication_password_env", "replication_password_file"],
    "the password",
);

#[derive(Clone, Debug)]
pub struct Provision {
    /// Connection URL of a role that may create roles, tables, publications and subscriptions. Read
    /// when needed: serving must not need it.
    pub admin_url: SecretSource,
    /// By which gateways connect.
    pub gateway: Account,
    /// By which other regions replicate.
    pub replication: Account,
    /// libpq connection strings of every other region's Postgres, as seen from this region's. Read
    /// when needed.
    pub publishers: BTreeMap<RegionName, SecretSource>,
    /// Authorities of the servers' certificates on this machine, PEM, if `sslrootcert` is a path on
    /// another machine.
    pub publishers_ca: Option<PathBuf>,
}

/// A role, and its password if it has to be created.
#[derive(Clone, Debug)]
pub struct Account {
    pub role: String,
    pub password: Option<SecretSource>,
}

/// Reads the table. Errors are reported.
pub(super) fn read(mut section: Section<'_>) -> (Option<Provision>, ByRegion<SecretSource>) {
    // A machine that only serves does not need what `onceway store` needs.
    if section.surroundings.need == Need::Gateway {
        section.surroundings.need = Need::Serve;
    }
    let admin_url = SecretSource::read(&section, &ADMIN_URL);
    if let Some(source) = &admin_url {
        source.later(&section, &section.at_key(source.key(&ADMIN_URL)), database_url);
    }
    let account = |key, usual: &str, names: &Names| {
        let role = section.optional(key, role).unwrap_or_else(|| usual.to_owned());
        let password = SecretSource::read_if_there(&section, names);
        if let Some(source) = &password {
            source.later(&section, &section.at_key(source.key(names)), |_| Ok(()));
        }
        Account { role, password }
    };
    let gateway = account("gateway_role", "onceway_gateway", &GATEWAY_PASSWORD);
    let replication = account("replication_role", "onceway_replication", &REPLICATION_PASSWORD);
    if gateway.role == replication.role {
        section.fail("gateway_role and replication_role must be two roles: each may do only its own work");
    }
    let publishers_ca = section.later("publishers_ca");
    if let Some(path) = &publishers_ca
        && section.surroundings.need.checks()
        && let Some(why) = address::wrong_authorities(path)
    {
        section.fail_at("publishers_ca", format!("publishers_ca: {why}"));
    }
    let publishers =
        by_region(&section, "publishers", |value| publisher(value, &section, publishers_ca.as_deref()));
    for located in publishers.entries.values() {
        located.value.later(&section, &located.at, |text| conninfo(text, publishers_ca.as_deref()));
    }
    let provision = admin_url.map(|admin_url| Provision {
        admin_url,
        gateway,
        replication,
        publishers: publishers.clone().values(),
        publishers_ca: publishers_ca.clone(),
    });
    (provision, publishers)
}

fn role(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    let starts = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if text.len() > 63 || !starts || !text.bytes().all(allowed) {
        return Err(format!("{text:?} must be a role's name of at most 63 of a-z, 0-9 and '_'"));
    }
    Ok(text)
}

/// Reads the connection string of another region's Postgres, or its source.
fn publisher(value: &DeValue<'_>, section: &Section<'_>, ca: Option<&Path>) -> Result<SecretSource, String> {
    const ADVICE: &str = "write { env = \"NAME\" } with the name of an environment variable, or { file = \"PATH\" }, that holds the whole string";
    if let DeValue::Table(table) = value {
        let mut entries = table.iter().map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()));
        return match (entries.next(), entries.next()) {
            (Some(("env", value)), None) => reader::text(value).map(SecretSource::Variable),
            (Some(("file", value)), None) => section.path(value).map(SecretSource::File),
            (_, _) => Err(format!("must be a connection string without a password; else {ADVICE}")),
        };
    }
    let text = reader::text(value)?;
    no_password_in_conninfo(&text).map_err(|why| format!("{why}: {ADVICE}"))?;
    conninfo(&text, ca).map(|()| SecretSource::Written(Secret::new(&text)))
}

/// Checks a libpq connection string. It may hold a password, so no message repeats it.
pub fn conninfo(text: &str, authorities: Option<&Path>) -> Result<(), String> {
    let has = |key: &str| text.split_whitespace().any(|word| word.starts_with(key));
    match ["host=", "dbname=", "user="].into_iter().find(|key| !has(key)) {
        None => {
            Address::of_libpq(text, authorities).map(drop).map_err(|why| format!("cannot be used: {why}"))
        }
        Some(missing) => Err(format!(
            "has no {missing}: write a libpq connection string, such as \"host=... port=5432 user=... dbname=...\""
        )),
    }
}

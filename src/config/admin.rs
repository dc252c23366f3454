//! `[admin]`: whom the admin listener answers, by a shared token or `operators.toml`, and its TLS.
//!
//! Messages repeat neither a secret nor the digest of a token: its author may have written the
//! token itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use toml::de::DeValue;

use super::credentials::digest_of;
use super::listen::{self, TlsFiles};
use super::reader::{self, Problems, Section, Source};
use super::secret::{Names, Secret, SecretSource};
use crate::gateway::credentials::operators::{Operator, Operators, Role, Weighty};
use crate::gateway::credentials::{TokenDigest, digest};

const MOST_NAME: usize = 100;

const TOKEN: Names = Names::secret(["token", "token_env", "token_file"], "the token");

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    pub token: Option<Secret>,
    /// Operators with a token of their own, by its digest.
    pub named: BTreeMap<TokenDigest, Operator>,
    /// Acts that a second person has to approve.
    pub second_person: BTreeSet<Weighty>,
    pub tls: Option<TlsFiles>,
}

impl Admin {
    /// The same, with digests only.
    pub fn operators(&self) -> Operators {
        let shared = self.token.as_ref().map(|token| digest(token.reveal().as_bytes()));
        Operators { shared, named: self.named.clone(), second_person: self.second_person.clone() }
    }
}

/// Reads `[admin]` and the file that it names. `acts` is false for a witness, which knows none.
pub(super) fn read(top: &Section<'_>, address: Option<SocketAddr>, acts: bool) -> Option<Admin> {
    let Some(section) = top.table("admin") else { return open(top, address, None) };
    let tls = section.if_there("tls", listen::tls);
    let source = SecretSource::read_if_there(&section, &TOKEN);
    let has_token = section.has(TOKEN.variable) || section.has(TOKEN.file);
    let token = source.and_then(|source| source.needed(&section, &TOKEN, token));
    let has_file = section.has("operators");
    let file = section.located("operators", |value| section.path(value));
    let named = file.and_then(|file| Source::read_by(&file, section.problems, named));
    let words = |value: &DeValue<'_>| {
        reader::list(value, |one| reader::word(one, &Weighty::ALL.map(|one| (one.name(), one))))
    };
    let second_person = acts.then(|| section.optional("second_person", words)).flatten().unwrap_or_default();
    // A file with mistakes is told by itself.
    if !second_person.is_empty() && (named.is_some() || !has_file) && !named.as_ref().is_some_and(can_approve)
    {
        let why =
            "second_person needs two named operators: one with the role \"approve\", and another who may act";
        section.fail_at("second_person", why);
    }
    if !has_token && !has_file {
        return open(top, address, tls?);
    }
    let token = if has_token { Some(token?) } else { None };
    let named = if has_file { named? } else { BTreeMap::new() };
    if token.as_ref().is_some_and(|token| named.contains_key(&digest(token.reveal().as_bytes()))) {
        let why = "the shared token is a named operator's, too: draw another (`openssl rand -hex 32`)";
        top.fail_at("admin", why);
        return None;
    }
    let second_person = second_person.into_iter().collect();
    Some(Admin { token, named, second_person, tls: tls? })
}

/// True if one of these operators can approve what another does.
fn can_approve(named: &BTreeMap<TokenDigest, Operator>) -> bool {
    let may = |role| named.values().filter(move |one| one.role >= role).map(|one| &one.name);
    may(Role::Approve).any(|second| may(Role::Act).any(|first| first != second))
}

/// An admin listener that requires no token: on loopback only.
fn open(top: &Section<'_>, address: Option<SocketAddr>, tls: Option<TlsFiles>) -> Option<Admin> {
    let address = address?;
    if address.ip().is_loopback() {
        return Some(Admin { tls, ..Admin::default() });
    }
    top.fail_at(
        "listen",
        format!(
            "the admin listener on {address} is open to other machines: name a file with a token ([admin] token_file), \
             or listen on 127.0.0.1"
        ),
    );
    None
}

pub(super) fn named(source: &Source, problems: &Problems) -> Option<BTreeMap<TokenDigest, Operator>> {
    let document = source.parse(problems)?;
    let top = Section::top(source, &document, problems);
    let (mut named, mut roles) = (BTreeMap::new(), BTreeMap::new());
    let sections = top.tables("operator");
    if sections.is_empty() {
        top.fail("no operator is listed: write an [[operator]] with name, role and sha256");
    }
    for section in sections {
        let name = section.required("name", "name who has the token, such as name = \"ann\"", name);
        let advice = "say what this operator may do: \"look\", \"act\" or \"approve\"";
        let role = section
            .required("role", advice, |value| reader::word(value, &Role::ALL.map(|one| (one.name(), one))));
        let digest = digest_of(&section);
        if let (Some(name), Some(role), Some(digest)) = (name, role, digest) {
            if roles.insert(name.clone(), role).is_some_and(|before| before != role) {
                section.fail_at("role", format!("{name} has another role above: give both tokens the same"));
            }
            if let Some(before) = named.insert(digest, Operator { name, role }) {
                let name = before.name;
                section.fail_at("sha256", format!("this token is listed already, for {name}: list it once"));
            }
        }
    }
    Some(named)
}

fn name(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    if text.len() > MOST_NAME || text.trim() != text || text.chars().any(char::is_control) {
        return Err(format!("must have at most {MOST_NAME} bytes, on one line, without space around it"));
    }
    Ok(text)
}

/// Checks the token. The message does not repeat it, as it is a secret.
fn token(text: &str) -> Result<(), String> {
    if text.len() < 16 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must hold one token of 16 or more visible ASCII characters, such as `openssl rand -hex 32` prints".to_owned());
    }
    Ok(())
}

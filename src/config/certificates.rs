//! Checks of the certificates that a file names, by the code that later uses them.
//!
//! So a check reports every error that a start or a reload would find, and only a check.

use std::path::Path;

use super::reader::Section;
use super::secret::{Need, Secret};
use crate::adapters::identity::{IdentityError, IdentityFiles, PeerIdentity};
use crate::adapters::postgres::address::{self, Address};
use crate::adapters::tls;
use crate::adapters::upstream::{Tls, TlsFiles};
use crate::protocol::region::RegionName;

/// Checks the files of a region's or witness's own identity.
pub(super) fn of_peer(section: &Section<'_>, me: &RegionName, files: &IdentityFiles) {
    let keys = [("certificate", &*files.certificate), ("key", &*files.key), ("ca", &*files.authorities)];
    tell(section, || PeerIdentity::wrong(me, files), &keys);
}

/// Checks the files of TLS for clients.
pub(super) fn of_clients(section: &Section<'_>, certificate: &Path, key: &Path) {
    tell(section, || tls::wrong(certificate, key), &[("certificate", certificate), ("key", key)]);
}

/// Checks the files of TLS to an upstream.
pub(super) fn of_upstream(section: &Section<'_>, files: &TlsFiles) {
    let own =
        files.own.iter().flat_map(|(certificate, key)| [("certificate", &**certificate), ("key", &**key)]);
    let keys: Vec<(&'static str, &Path)> = own.chain(files.ca.as_deref().map(|ca| ("ca", ca))).collect();
    tell(section, || Tls::load(files).err().into_iter().collect(), &keys);
}

/// Checks the certificates that the store's URL names. A serving process reads them for each
/// connection, so their change is no change of its configuration.
pub(super) fn of_store(url: &Secret, section: &Section<'_>, key: &'static str) {
    if section.surroundings.need == Need::Serve {
        return;
    }
    let Ok(address) = url.reveal().parse::<Address>() else { return };
    for path in address.files() {
        section.reads_later(key, path);
    }
    if section.surroundings.need.checks() {
        for why in address.wrong_files() {
            section.fail_at(key, format!("{key}: {why}"));
        }
    }
}

/// Checks the authorities of other regions' Postgres.
pub(super) fn of_publishers(section: &Section<'_>, key: &'static str, path: &Path) {
    section.reads_later(key, path);
    if section.surroundings.need.checks()
        && let Some(why) = address::wrong_authorities(path)
    {
        section.fail_at(key, format!("{key}: {why}"));
    }
}

/// In a check, reports each error at the key that names its file.
fn tell(section: &Section<'_>, wrong: impl FnOnce() -> Vec<IdentityError>, keys: &[(&'static str, &Path)]) {
    if !section.surroundings.need.checks() {
        return;
    }
    for error in wrong().iter().filter(|error| !error.is_unread()) {
        let named = keys.iter().find(|(_, path)| error.path() == Some(path));
        if let Some((key, _)) = named {
            section.fail_at(key, format!("{key}: {error}"));
        }
    }
}

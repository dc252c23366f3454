//! Maker of the peers' certificates: an authority, certificates, and the list of revoked ones.
//!
//! The list is in `ca.pem` behind the authority's certificate, so every reader that trusts the
//! authority reads it. This file must not overwrite a key or a certificate.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData,
    RevokedCertParams, SerialNumber, SigningKey,
};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use webpki::{BorrowedCertRevocationList, CertRevocationList, EndEntityCert};

use super::identity::{IdentityError, chain, content, dns_name, files_in, region_of, unnamed};
use super::system::SystemClock;
use crate::ports::Clock;
use crate::protocol::digest::digest;
use crate::protocol::region::RegionName;

/// Beginning of a generated authority's name: the whole of it in an earlier version.
const AUTHORITY: &str = "onceway authority";
const REGION_LIFE: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Time by which clocks may be behind the clock that generated a certificate.
const BACKDATE: Duration = Duration::from_secs(24 * 3600);

/// Holder of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Region: it sends questions and answers them.
    Region,
    /// Witness: it only answers, and no region lets it in as a client.
    Witness,
}

/// An authority and the certificates that it signed for some regions. All are PEM.
pub struct Generated {
    /// Its certificate.
    pub authority: String,
    /// The authority's key. Its holder can act as any region: keep it off the regions' machines.
    pub authority_key: String,
    /// Each region's certificate and key.
    pub regions: Vec<(RegionName, String, String)>,
}

/// Makes a new authority and one certificate per region, for clients and servers. They are valid
/// from yesterday: regions for two years, the authority for ten. Takes some milliseconds. Fails
/// only if the cryptographic library does.
pub fn generate(regions: &[RegionName]) -> Result<Generated, IdentityError> {
    let key = KeyPair::generate()?;
    let authority = CertifiedIssuer::self_signed(authority_params(&own_name(&key))?, key)?;
    let regions = signed(regions, Purpose::Region, &authority)?;
    Ok(Generated { authority: authority.pem(), authority_key: authority.key().serialize_pem(), regions })
}

/// Name of the authority with this key: revocation lists are looked up by it.
fn own_name(key: &KeyPair) -> String {
    let text = digest("onceway/authority/1", &[key.der_bytes()]).to_string();
    format!("{AUTHORITY} {}", &text[..16])
}

fn authority_params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(Vec::new(), name, AUTHORITY_LIFE)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Makes certificates for more regions or witnesses, under the authority that [`Generated::write`]
/// put into `directory`. Blocks. Fails if the authority's files are missing or unusable. An
/// existing file is never overwritten.
pub fn add(directory: &Path, regions: &[RegionName], purpose: Purpose) -> Result<(), IdentityError> {
    let Authority { issuer, .. } = authority(directory)?;
    write_regions(directory, &signed(regions, purpose, &issuer)?)
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its name, as certificates and revocation lists encode it.
    subject: Vec<u8>,
}

/// The authority whose key is in `directory`, as one of the certificates of `ca.pem` names it.
fn authority(directory: &Path) -> Result<Authority, IdentityError> {
    let key = KeyPair::from_pem(&text(&directory.join("ca.key"))?)?;
    let (path, own) = (directory.join("ca.pem"), own_name(&key));
    for certificate in chain(&path)? {
        let Ok(read) = EndEntityCert::try_from(&certificate) else { continue };
        for name in [own.as_str(), AUTHORITY] {
            if read.subject().ends_with(name.as_bytes()) {
                let subject = read.subject().to_vec();
                return Ok(Authority { issuer: Issuer::new(authority_params(name)?, key), subject });
            }
        }
    }
    Err(content(&path, "no certificate in it is of the authority whose key is ca.key".to_owned()))
}

fn text(path: &Path) -> Result<String, IdentityError> {
    fs::read_to_string(path).map_err(|cause| IdentityError::File(path.to_owned(), cause))
}

fn signed(
    regions: &[RegionName],
    purpose: Purpose,
    authority: &Issuer<'_, impl SigningKey>,
) -> Result<Vec<(RegionName, String, String)>, IdentityError> {
    let signed = regions.iter().map(|region| {
        let name = dns_name(region);
        let mut params = self::params(vec![name.clone()], &name, REGION_LIFE)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match purpose {
            Purpose::Region => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Purpose::Witness => vec![ExtendedKeyUsagePurpose::ServerAuth],
        };
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        Ok((region.clone(), certificate.pem(), key.serialize_pem()))
    });
    signed.collect()
}

/// Revokes certificates of a region or witness: those in `files`, or, if there are none, the one in
/// `directory`. The new list replaces the one before in `ca.pem` and contains all of it. Returns
/// the number of certificates on it. Blocks. Fails if a file is missing, or a certificate is of
/// another holder. Then nothing was written.
pub fn revoke(directory: &Path, name: &RegionName, files: &[PathBuf]) -> Result<usize, IdentityError> {
    let (all, text) = revocation(directory, name, files)?;
    replace(&directory.join("ca.pem"), &text)?;
    Ok(all)
}

/// The text that [`revoke`] would write into `ca.pem`, and the number of certificates on its list.
/// Writes nothing, and fails where [`revoke`] would. Blocks.
pub fn revocation(
    directory: &Path,
    name: &RegionName,
    files: &[PathBuf],
) -> Result<(usize, String), IdentityError> {
    let Authority { issuer, subject } = authority(directory)?;
    let path = directory.join("ca.pem");
    let text = text(&path)?;
    let mut serials = BTreeSet::new();
    let present = [files_in(directory, name).certificate];
    for file in if files.is_empty() { &present[..] } else { files } {
        let chain = chain(file)?;
        let own = EndEntityCert::try_from(&chain[0]).map_err(|_| unnamed(file, name))?;
        if !region_of(&chain, name) {
            return Err(unnamed(file, name));
        }
        serials.insert(own.serial().to_vec());
    }
    let mut kept = without_lists(&text);
    for list in CertificateRevocationListDer::pem_slice_iter(text.as_bytes()) {
        let unread =
            |cause: &dyn Display| content(&path, format!("a revocation list cannot be read: {cause}"));
        let list = list.map_err(|cause| unread(&cause))?;
        let read = BorrowedCertRevocationList::from_der(&list).map_err(|cause| unread(&cause))?;
        let entries = (&read).into_iter().map(|entry| entry.map(|entry| entry.serial_number.to_vec()));
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|cause| unread(&cause))?;
        match CertRevocationList::from(read).issuer() == subject {
            true => serials.extend(entries),
            false => kept.push_str(&pem(&list)),
        }
    }
    let all = serials.len();
    kept.push_str(&list_of(serials, &issuer)?);
    Ok((all, kept))
}

/// Makes a revocation list of these serial numbers, as PEM. The list is valid as long as an
/// authority, so that no reader refuses it for its age. There is only one list, and each one
/// contains the list before.
fn list_of(
    serials: impl IntoIterator<Item = Vec<u8>>,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<String, IdentityError> {
    let valid = params(Vec::new(), AUTHORITY, AUTHORITY_LIFE)?;
    let revoked = |serial: Vec<u8>| RevokedCertParams {
        serial_number: SerialNumber::from_slice(&serial),
        revocation_time: valid.not_before,
        reason_code: None,
        invalidity_date: None,
    };
    let revoked_certs: Vec<RevokedCertParams> = serials.into_iter().map(revoked).collect();
    let list = CertificateRevocationListParams {
        this_update: valid.not_before,
        next_update: valid.not_after,
        crl_number: SerialNumber::from(revoked_certs.len() as u64),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(list.signed_by(issuer)?.pem()?)
}

const BEGIN: &str = "-----BEGIN X509 CRL-----";
const END: &str = "-----END X509 CRL-----";

fn without_lists(text: &str) -> String {
    let mut inside = false;
    let outside = text.lines().filter(|line| {
        inside = inside || line.trim() == BEGIN;
        let keep = !inside;
        inside = inside && line.trim() != END;
        keep
    });
    outside.map(|line| format!("{line}\n")).collect()
}

fn pem(list: &CertificateRevocationListDer<'_>) -> String {
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, list);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    [format!("{BEGIN}\n").into()].into_iter().chain(lines).chain([format!("{END}\n").into()]).collect()
}

/// Replaces an existing file, whole or not at all.
fn replace(path: &Path, text: &str) -> Result<(), IdentityError> {
    let new = path.with_extension("pem.new");
    let io = |cause| IdentityError::File(new.clone(), cause);
    fs::remove_file(&new).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(io(error)),
    })?;
    create(&new, 0o644, text)?;
    fs::rename(&new, path).map_err(io)
}

fn params(names: Vec<String>, title: &str, life: Duration) -> Result<CertificateParams, rcgen::Error> {
    let now = Duration::from_millis(u64::try_from(SystemClock.date().as_millis()).unwrap_or(0));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::new(names)?;
    params.not_before = epoch + now.saturating_sub(BACKDATE);
    params.not_after = epoch + now + life;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, title);
    Ok(params)
}

impl Generated {
    /// Writes `ca.pem` and `ca.key`, and for each region `<region>.pem` and `<region>.key`, into
    /// `directory`, which must exist. Only the owner can read the keys. Blocks. An existing file is
    /// never overwritten: that is an error, and files written before it stay.
    pub fn write(&self, directory: &Path) -> Result<(), IdentityError> {
        create(&directory.join("ca.pem"), 0o644, &self.authority)?;
        create(&directory.join("ca.key"), 0o600, &self.authority_key)?;
        write_regions(directory, &self.regions)
    }
}

fn write_regions(directory: &Path, regions: &[(RegionName, String, String)]) -> Result<(), IdentityError> {
    for (region, certificate, key) in regions {
        let files = files_in(directory, region);
        create(&files.certificate, 0o644, certificate)?;
        create(&files.key, 0o600, key)?;
    }
    Ok(())
}

fn create(path: &Path, mode: u32, text: &str) -> Result<(), IdentityError> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|cause| IdentityError::File(path.to_owned(), cause))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::super::identity::PeerIdentity;
    use super::*;
    use crate::protocol::examples::name;

    /// Makes regions eu, us and ap, and the witness w, under one authority.
    fn made() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        generate(&["eu", "us", "ap"].map(name)).unwrap().write(folder.path()).unwrap();
        add(folder.path(), &[name("w")], Purpose::Witness).unwrap();
        folder
    }

    fn identity(folder: &Path, me: &str) -> PeerIdentity {
        PeerIdentity::load(name(me), &files_in(folder, &name(me))).unwrap()
    }

    /// True if that identity, judged anew, lets a client in with the certificate of `who`.
    fn lets_in(identity: &PeerIdentity, folder: &Path, who: &str) -> bool {
        let chain = chain(&files_in(folder, &name(who)).certificate).unwrap();
        let still = identity.still_lets_in(&chain, &AtomicU64::new(u64::MAX));
        let anew = identity.lets_in(&chain);
        assert!(still || !anew, "an open connection is refused, and a new one let in");
        anew
    }

    #[test]
    fn a_witness_is_no_client() {
        let folder = made();
        let us = identity(folder.path(), "us");
        assert!(lets_in(&us, folder.path(), "eu") && !lets_in(&us, folder.path(), "w"));
        identity(folder.path(), "w");
    }

    #[test]
    fn a_revoked_region_is_never_let_in_again() {
        let folder = made();
        let path = folder.path();
        let us = identity(path, "us");
        assert!(lets_in(&us, path, "eu") && lets_in(&us, path, "ap"));
        assert_eq!(revoke(path, &name("eu"), &[]).unwrap(), 1);
        assert!(lets_in(&us, path, "eu"), "the file was not read again");
        us.renew(&identity(path, "us"));
        assert!(!lets_in(&us, path, "eu") && lets_in(&us, path, "ap"));
        assert_eq!(revoke(path, &name("ap"), &[]).unwrap(), 2);
        assert_eq!(revoke(path, &name("ap"), &[]).unwrap(), 2);
        us.renew(&identity(path, "us"));
        assert!(!lets_in(&us, path, "eu") && !lets_in(&us, path, "ap"));
        let wrong = revoke(path, &name("us"), &[path.join("eu.pem")]).unwrap_err().to_string();
        assert!(wrong.contains("does not name us.onceway"), "{wrong}");
    }

    /// Two authorities side by side: a list of one does not affect certificates of the other.
    #[test]
    fn a_list_counts_for_its_own_authority_only() {
        let (old, new) = (made(), made());
        revoke(old.path(), &name("eu"), &[]).unwrap();
        let both = [old.path(), new.path()].map(|folder| fs::read_to_string(folder.join("ca.pem")).unwrap());
        fs::write(old.path().join("ca.pem"), both.concat()).unwrap();
        let us = identity(old.path(), "us");
        assert!(!lets_in(&us, old.path(), "eu") && lets_in(&us, old.path(), "ap"));
        assert!(lets_in(&us, new.path(), "eu") && lets_in(&us, new.path(), "ap"));
        assert_eq!(revoke(old.path(), &name("ap"), &[]).unwrap(), 2, "with both in one file");
        us.renew(&identity(old.path(), "us"));
        assert!(!lets_in(&us, old.path(), "ap") && lets_in(&us, new.path(), "ap"));
    }

    /// An authority of an earlier version: all of those have one name.
    #[test]
    fn an_authority_of_before_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(authority_params(AUTHORITY).unwrap(), key).unwrap();
        fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        fs::write(folder.path().join("ca.key"), authority.key().serialize_pem()).unwrap();
        add(folder.path(), &["eu", "us"].map(name), Purpose::Region).unwrap();
        revoke(folder.path(), &name("eu"), &[]).unwrap();
        let us = identity(folder.path(), "us");
        assert!(!lets_in(&us, folder.path(), "eu") && lets_in(&us, folder.path(), "us"));
    }
}

//! TLS for clients: one certificate, TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN, no early data.
//!
//! `config::listen` names the files; `server::public` uses the result. The peer listener's TLS is
//! in [`super::identity`] and shares only the reading of PEM.

use std::path::Path;

use rustls::ServerConfig;

use super::identity::{IdentityError, chain, mismatch, private_key, provider};

/// The ALPN name of HTTP/2.
pub const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Reads the files. Blocks; meant for the start of a process. An error is one line that names the
/// file and its fault: unreadable, not PEM, a key of another certificate.
pub fn load(certificate: &Path, key: &Path) -> Result<ServerConfig, IdentityError> {
    let (chain, private) = (chain(certificate)?, private_key(key)?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(mismatch(key, certificate))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    // An attacker who captured a request in early data could replay it.
    config.max_early_data_size = 0;
    Ok(config)
}

/// All errors that [`load`] would find, each file by itself. Blocks.
pub fn wrong(certificate: &Path, key: &Path) -> Vec<IdentityError> {
    let alone = [chain(certificate).err(), private_key(key).err()];
    let alone: Vec<IdentityError> = alone.into_iter().flatten().collect();
    if alone.is_empty() { load(certificate, key).err().into_iter().collect() } else { alone }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::adapters::issue::generate;
    use crate::protocol::region::RegionName;

    #[test]
    fn unusable_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let regions = ["a", "b"].map(|name| RegionName::parse(name).unwrap());
        generate(&regions).unwrap().write(folder.path()).unwrap();
        let at = |name: &str| -> PathBuf { folder.path().join(name) };
        std::fs::write(at("garbage"), "nothing to see").unwrap();
        assert_eq!(load(&at("a.pem"), &at("a.key")).unwrap().max_early_data_size, 0);
        assert!(wrong(&at("a.pem"), &at("a.key")).is_empty());
        for (certificate, key, file, expected) in [
            ("missing", "a.key", "missing", "missing: No such file"),
            ("garbage", "a.key", "garbage", "garbage: no PEM certificate"),
            ("a.pem", "missing", "missing", "missing: No such file"),
            ("a.pem", "garbage", "garbage", "garbage: no PEM private key"),
            ("a.pem", "b.key", "b.key", "b.key: cannot be used with"),
        ] {
            let error = load(&at(certificate), &at(key)).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
            assert_eq!((error.path(), error.is_unread()), (Some(&*at(file)), file == "missing"));
            let wrong: Vec<String> =
                wrong(&at(certificate), &at(key)).iter().map(ToString::to_string).collect();
            assert_eq!(wrong, [said]);
        }
        assert_eq!(wrong(&at("garbage"), &at("missing")).len(), 2);
    }
}

//! TLS for clients: one certificate, TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN, no early data.
//!
//! Neighbours: `config::listen` names the files, `public` shakes hands with what is loaded here; the peer listener's TLS is
//! `adapters::identity`'s and shares nothing with it. It must not open a socket, and must not repeat a key in a message.

use anyhow::{Context, Result};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::adapters::identity::{certificates, provider, read};
use crate::config::listen::TlsFiles;

/// The ALPN name of HTTP/2.
pub const HTTP2: &[u8] = b"h2";
/// The ALPN name of HTTP/1.1.
const HTTP1: &[u8] = b"http/1.1";

/// Reads the files. Blocks; meant for the start of a process.
///
/// # Errors
/// One line that names setting and file and says what is wrong: unreadable, not PEM, a key of another certificate.
pub fn load(files: &TlsFiles) -> Result<ServerConfig> {
    let chain = read(&files.certificate).and_then(|pem| certificates(&files.certificate, &pem));
    let chain = chain.context("[listen.tls] certificate")?;
    let pem = read(&files.key).context("[listen.tls] key")?;
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .with_context(|| format!("[listen.tls] key: {}: no PEM private key", files.key.display()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .with_context(|| {
            let (key, certificate) = (files.key.display(), files.certificate.display());
            format!("[listen.tls] key: {key} cannot be used with {certificate}")
        })?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    // A request in early data can be replayed by whoever captured it.
    config.max_early_data_size = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::adapters::identity::generate;
    use crate::protocol::region::RegionName;

    fn said(certificate: &Path, key: &Path) -> String {
        let files = TlsFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        format!("{:#}", load(&files).unwrap_err())
    }

    #[test]
    fn unusable_files_are_named_with_their_setting() {
        let folder = tempfile::tempdir().unwrap();
        let regions = ["a", "b"].map(|name| RegionName::parse(name).unwrap());
        generate(&regions).unwrap().write(folder.path()).unwrap();
        let at = |name: &str| -> PathBuf { folder.path().join(name) };
        std::fs::write(at("garbage"), "nothing to see").unwrap();
        let files = TlsFiles { certificate: at("a.pem"), key: at("a.key") };
        assert_eq!(load(&files).unwrap().max_early_data_size, 0);
        for (certificate, key, expected) in [
            ("missing", "a.key", "[listen.tls] certificate: "),
            ("missing", "a.key", "missing: No such file"),
            ("garbage", "a.key", "garbage: no PEM certificate"),
            ("a.pem", "missing", "[listen.tls] key: "),
            ("a.pem", "missing", "missing: No such file"),
            ("a.pem", "garbage", "garbage: no PEM private key"),
            ("a.pem", "b.key", "b.key cannot be used with"),
        ] {
            let said = said(&at(certificate), &at(key));
            assert!(said.contains(expected) && !said.contains('\n'), "{said}");
        }
    }
}

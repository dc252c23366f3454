//! Until when this process' certificates are valid, as metrics.
//!
//! Neighbours: whoever takes certificates into use (`run`, `reload`) calls [`show`] right after it; `adapters::expiry` reads them. A file
//! that cannot be read here changes nothing: whoever loaded it said so. It must not load, watch or judge certificates.

use std::path::Path;

use crate::adapters::expiry::expires;
use crate::adapters::identity::{certificates, read};
use crate::config::Config;
use crate::ports::observe;

/// Shows when the certificates that this configuration names expire: of each file the first to do so. Blocks: it reads the files.
pub(super) fn show(config: &Config) {
    let (peer, public) = (&config.process.peer, &config.process.listen.tls);
    one("peer", &peer.certificate);
    one("authority", &peer.ca);
    if let Some(files) = public {
        one("public", &files.certificate);
    }
}

fn one(of: &'static str, file: &Path) {
    let Ok(chain) = read(file).and_then(|pem| certificates(file, &pem)) else { return };
    if let Some(first) = chain.iter().filter_map(expires).min() {
        metrics::gauge!(observe::CERTIFICATE_EXPIRES, "of" => of).set(first as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn pem(year: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["a.onceway".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_first_of_a_file_to_expire_is_shown_and_a_file_that_is_gone_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let recorder = PrometheusBuilder::new().build_recorder();
        let shown = || {
            metrics::with_local_recorder(&recorder, || one("authority", &file));
            let page = recorder.handle().render();
            let line = page.lines().find_map(|line| {
                line.strip_prefix("onceway_certificate_expires_timestamp_seconds{of=\"authority\"} ")
            });
            line.map(str::to_owned)
        };
        assert_eq!(shown(), None);
        fs::write(&file, pem(2031)).unwrap();
        assert_eq!(shown().as_deref(), Some("1924992000"));
        // The old one beside the new one, as in a rotation.
        fs::write(&file, pem(2041) + &pem(2030)).unwrap();
        assert_eq!(shown().as_deref(), Some("1893456000"));
        fs::remove_file(&file).unwrap();
        assert_eq!(shown().as_deref(), Some("1893456000"));
    }
}

//! Expiry dates of this process's certificates, as metrics.
//!
//! The store's are read for each connection, so this file looks at them again and again. A file
//! that cannot be read changes nothing here: the code that loads it reports the error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::adapters::identity::chain;
use crate::adapters::postgres::address::Address;
use crate::config::Config;
use crate::config::witness::WitnessConfig;
use crate::ports::observe;

const EVERY: Duration = Duration::from_secs(60);

/// The use of each file, and when the first of its certificates expires, in seconds since 1970.
#[derive(Default)]
pub(super) struct Expiries(Vec<(&'static str, i64)>);

/// Shows the certificates that a process starts with, and keeps looking at the store's.
pub(super) fn start(config: &Config, read: &Expiries) {
    read.show();
    // The parser's error is not logged: it may quote the URL. The code that connects reports it.
    if let Ok(address) = config.process.store.url.reveal().parse() {
        tokio::spawn(watch_store(address));
    }
}

/// Shows the dates of the certificates that the store's URL names, as long as it is polled.
async fn watch_store(address: Address) {
    loop {
        let named = address.clone();
        let look = move || {
            let (own, authorities) = named.certificates();
            let own = own.and_then(first).map(|at| ("store", at));
            // A bundle of public authorities holds many that nobody needs, so the last date counts.
            let authorities = authorities.and_then(|file| ends(file).into_iter().max());
            Expiries(own.into_iter().chain(authorities.map(|at| ("store_authority", at))).collect())
        };
        if let Ok(found) = tokio::task::spawn_blocking(look).await {
            found.show();
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Reads the dates of the certificates of a configuration, without the store's. Blocks.
pub(super) fn look(config: &Config) -> Expiries {
    let peer = config.process.peer.as_ref().map(|peer| &peer.files);
    look_at([
        ("peer", peer.map(|files| &files.certificate)),
        ("authority", peer.map(|files| &files.authorities)),
        ("public", config.process.listen.tls.as_ref().map(|files| &files.certificate)),
        ("admin", config.process.admin.tls.as_ref().map(|files| &files.certificate)),
    ])
}

/// Reads the dates of a witness's certificates. Blocks: it reads the files.
pub(super) fn look_of_witness(config: &WitnessConfig) -> Expiries {
    look_at([
        ("peer", Some(&config.identity.certificate)),
        ("authority", Some(&config.identity.authorities)),
        ("admin", config.operators.tls.as_ref().map(|files| &files.certificate)),
    ])
}

fn look_at<const N: usize>(files: [(&'static str, Option<&PathBuf>); N]) -> Expiries {
    Expiries(files.into_iter().filter_map(|(of, file)| Some((of, first(file?)?))).collect())
}

impl Expiries {
    pub fn show(&self) {
        for (of, at) in &self.0 {
            metrics::gauge!(observe::CERTIFICATE_EXPIRES, "of" => *of).set(*at as f64);
        }
    }

    /// Renders the dates as lines of a metrics page. A witness writes its own page.
    pub fn page(&self) -> String {
        let name = observe::CERTIFICATE_EXPIRES;
        let help = observe::ALL.iter().find(|metric| metric.name == name).map_or("", |metric| metric.help);
        let series = self.0.iter().map(|(of, at)| format!("{name}{{of=\"{of}\"}} {at}\n"));
        [format!("# HELP {name} {help}\n# TYPE {name} gauge\n")].into_iter().chain(series).collect()
    }
}

fn first(file: &Path) -> Option<i64> {
    ends(file).into_iter().min()
}

/// Expiry dates of a file's certificates. Empty if the file cannot be read.
fn ends(file: &Path) -> Vec<i64> {
    chain(file).unwrap_or_default().iter().filter_map(expires).collect()
}

/// End of the certificate's validity, in seconds since 1970; none if it cannot be read.
fn expires(certificate: &CertificateDer<'_>) -> Option<i64> {
    let read = Certificate::from_der(certificate).ok()?;
    i64::try_from(read.tbs_certificate.validity.not_after.to_unix_duration().as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn certificate(year: i32) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(vec!["a.onceway".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    fn pem(year: i32) -> String {
        certificate(year).pem()
    }

    #[test]
    fn a_certificate_date_is_read_in_both_formats() {
        // From `date -u -d DATE +%s`. From 2050 on certificates write the year with four digits.
        for (year, expected) in [(1996, 820_454_400), (2049, 2_493_072_000), (2050, 2_524_608_000)] {
            let whole = certificate(year).der().clone();
            assert_eq!(expires(&whole), Some(expected), "{year}");
            for length in 0..whole.len() {
                assert_eq!(expires(&CertificateDer::from(whole[..length].to_vec())), None, "{length}");
            }
        }
    }

    #[test]
    fn the_first_of_a_file_to_expire_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let recorder = PrometheusBuilder::new().build_recorder();
        let shown = || {
            let found = first(&file).map(|at| ("authority", at));
            metrics::with_local_recorder(&recorder, || Expiries(found.into_iter().collect()).show());
            let page = recorder.handle().render();
            let line = page.lines().find_map(|line| {
                line.strip_prefix("onceway_certificate_expires_timestamp_seconds{of=\"authority\"} ")
            });
            line.map(str::to_owned)
        };
        assert_eq!(shown(), None);
        fs::write(&file, pem(2031)).unwrap();
        assert_eq!(shown().as_deref(), Some("1924992000"));
        // The old certificate beside the new one, as in a rotation.
        fs::write(&file, pem(2041) + &pem(2030)).unwrap();
        assert_eq!(shown().as_deref(), Some("1893456000"));
        fs::remove_file(&file).unwrap();
        assert_eq!(shown().as_deref(), Some("1893456000"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_store_certificate_and_latest_authority_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(file("own.pem"), pem(2041) + &pem(2031)).unwrap();
        fs::write(file("ca.pem"), pem(2030) + &pem(2041)).unwrap();
        let named = |name: &str| file(name).display().to_string();
        let address = format!(
            "host=db user=u sslmode=verify-full sslrootcert={} sslcert={} sslkey=/k",
            named("ca.pem"),
            named("own.pem")
        );
        let recorder = PrometheusBuilder::new().build_recorder();
        let _here = metrics::set_default_local_recorder(&recorder);
        let shows = async |of: &str, at: i64| {
            let line = format!("onceway_certificate_expires_timestamp_seconds{{of=\"{of}\"}} {at}\n");
            let mut looks = tokio::time::interval(EVERY);
            while !recorder.handle().render().contains(&line) {
                looks.tick().await;
            }
        };
        let seen = async {
            shows("store", 1_924_992_000).await;
            shows("store_authority", 2_240_611_200).await;
            fs::write(file("own.pem"), pem(2030)).unwrap();
            shows("store", 1_893_456_000).await;
        };
        tokio::select! {
            biased;
            () = watch_store(address.parse().unwrap()) => {}
            seen = tokio::time::timeout(EVERY * 100, seen) => seen.unwrap(),
        }
    }
}

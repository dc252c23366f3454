//! Until when this process' certificates are valid, as metrics.
//!
//! Neighbours: whoever takes certificates into use (`run`, `reload`, `witness`, `witness_reload`) looks when it reads them and shows once they count;
//! `adapters::expiry` reads them. A file that cannot be read here changes nothing: whoever loaded it said so. It must not load, watch or judge
//! certificates.

use std::path::Path;

use crate::adapters::expiry::expires;
use crate::adapters::identity::{certificates, read};
use crate::config::Config;
use crate::config::witness::WitnessConfig;
use crate::ports::observe;

/// What each file is for, and when the first of its certificates expires, in seconds since 1970.
#[derive(Default)]
pub(super) struct Expiries(Vec<(&'static str, i64)>);

/// When the certificates that this configuration names expire. Blocks: it reads the files.
pub(super) fn look(config: &Config) -> Expiries {
    let (peer, public) = (&config.process.peer, &config.process.listen.tls);
    let mut files = vec![("peer", &*peer.certificate), ("authority", &*peer.ca)];
    files.extend(public.as_ref().map(|files| ("public", &*files.certificate)));
    look_at(&files)
}

/// Those of a witness. Blocks: it reads the files.
pub(super) fn look_of_witness(config: &WitnessConfig) -> Expiries {
    look_at(&[("peer", &*config.certificate), ("authority", &*config.ca)])
}

fn look_at(files: &[(&'static str, &Path)]) -> Expiries {
    Expiries(files.iter().filter_map(|(of, file)| Some((*of, first(file)?))).collect())
}

impl Expiries {
    /// These are the ones that count from now on.
    pub fn show(&self) {
        for (of, at) in &self.0 {
            metrics::gauge!(observe::CERTIFICATE_EXPIRES, "of" => *of).set(*at as f64);
        }
    }

    /// The same as lines of a page: a witness writes its own.
    pub fn page(&self) -> String {
        let name = observe::CERTIFICATE_EXPIRES;
        let help = observe::ALL.iter().find(|metric| metric.name == name).map_or("", |metric| metric.help);
        let series = self.0.iter().map(|(of, at)| format!("{name}{{of=\"{of}\"}} {at}\n"));
        [format!("# HELP {name} {help}\n# TYPE {name} gauge\n")].into_iter().chain(series).collect()
    }
}

fn first(file: &Path) -> Option<i64> {
    let chain = read(file).and_then(|pem| certificates(file, &pem)).ok()?;
    chain.iter().filter_map(expires).min()
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
        // The old one beside the new one, as in a rotation.
        fs::write(&file, pem(2041) + &pem(2030)).unwrap();
        assert_eq!(shown().as_deref(), Some("1893456000"));
        fs::remove_file(&file).unwrap();
        assert_eq!(shown().as_deref(), Some("1893456000"));
    }
}

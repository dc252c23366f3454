//! Expiry dates of certificates.
//!
//! `server::certificates` shows them, so that an operator sees an expiry in advance. This file
//! verifies nothing, and must not decide anything: rustls decides whether a certificate is valid. A
//! certificate that cannot be read is `None`, whatever its bytes are.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// End of the certificate's validity, in seconds since 1970.
pub fn expires(certificate: &CertificateDer<'_>) -> Option<i64> {
    let read = Certificate::from_der(certificate).ok()?;
    i64::try_from(read.tbs_certificate.validity.not_after.to_unix_duration().as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec!["a.onceway".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, month, day);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_end_of_validity_is_read_in_both_spellings() {
        // From `date -u -d DATE +%s`. From 2050 on certificates write the year with four digits.
        for ((year, month, day), expected) in [
            ((1996, 2, 29), 825_552_000),
            ((2026, 11, 22), 1_795_305_600),
            ((2028, 3, 1), 1_835_481_600),
            ((2049, 12, 31), 2_524_521_600),
            ((2050, 1, 1), 2_524_608_000),
            ((2100, 3, 1), 4_107_542_400),
        ] {
            assert_eq!(expires(&certificate(year, month, day)), Some(expected), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn whatever_is_no_certificate_expires_never() {
        let good = certificate(2030, 1, 1);
        // The first length is that of the whole certificate, so a part of it is not a certificate.
        for length in 0..good.len() {
            assert_eq!(expires(&CertificateDer::from(good[..length].to_vec())), None, "{length}");
        }
        for position in 0..good.len() {
            let mut bent = good.to_vec();
            bent[position] = 0xff;
            let read = expires(&CertificateDer::from(bent)).map(|at| Duration::from_secs(at.unsigned_abs()));
            assert!(read.is_none_or(|span| span.as_secs() < 400_000_000_000), "{position}: {read:?}");
        }
        assert_eq!(expires(&CertificateDer::from(vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff])), None);
    }
}

//! Expiry dates of certificates, read from their DER (RFC 5280, sections 4.1 and 4.1.2.5).
//!
//! `server::certificates` shows them, so that an operator sees an expiry in advance. This file
//! verifies nothing, and must not decide anything: rustls decides whether a certificate is valid. A
//! certificate that cannot be read is `None`, whatever its bytes are.

use rustls::pki_types::CertificateDer;

/// Tags of the fields up to the end of validity (X.690).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// End of the certificate's validity, in seconds since 1970.
pub fn expires(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, whole) = tagged(&mut certificate.as_ref(), SEQUENCE)?;
    let (_, mut body) = tagged(&mut &*whole, SEQUENCE)?;
    if body.first() == Some(&VERSION) {
        element(&mut body)?;
    }
    // The serial number, the algorithm of the signature, the issuer.
    for _ in 0..3 {
        element(&mut body)?;
    }
    let (_, mut validity) = tagged(&mut body, SEQUENCE)?;
    element(&mut validity)?;
    let (tag, end) = element(&mut validity)?;
    instant(tag, end)
}

/// Takes one element from the front: its tag and its content.
fn element<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, after) = rest.split_first()?;
    let (&first, mut after) = after.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        // Four bytes of length are four gigabytes: no certificate has more.
        0x81..=0x84 => {
            let (bytes, beyond) = after.split_at_checked(usize::from(first - 0x80))?;
            after = beyond;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
        0x80 | 0x85..=0xff => return None,
    };
    let (held, beyond) = after.split_at_checked(length)?;
    *rest = beyond;
    Some((tag, held))
}

fn tagged<'a>(rest: &mut &'a [u8], wanted: u8) -> Option<(u8, &'a [u8])> {
    element(rest).filter(|(tag, _)| *tag == wanted)
}

/// Reads `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that certificates may have.
fn instant(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let parts: Vec<i64> = rest.chunks(2).map(number).collect::<Option<_>>()?;
    let [month, day, hour, minute, second] = parts[..] else { return None };
    let in_range = rest.len() == 10 && (1..=12).contains(&month) && (1..=31).contains(&day);
    in_range.then(|| ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn number(digits: &[u8]) -> Option<i64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()
}

/// Days from 1 January 1970 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let leaps_until = if month > 2 { leaps(year) } else { leaps(year - 1) };
    let whole = (year - 1_970) * 365 + leaps_until - leaps(1_969);
    whole + usize::try_from(month - 1).ok().and_then(|month| BEFORE.get(month)).unwrap_or(&0) + day - 1
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
    fn the_time_of_day_counts() {
        let at = |tag, text: &str| instant(tag, text.as_bytes());
        assert_eq!(at(UTC_TIME, "700101000001Z"), Some(1));
        assert_eq!(at(GENERALIZED_TIME, "19700102030405Z"), Some(97_445));
        for wrong in ["700101000001", "7001010000Z", "701301000000Z", "7O0101000000Z", "Z", ""] {
            assert_eq!(at(UTC_TIME, wrong), None, "{wrong:?}");
        }
        assert_eq!(at(SEQUENCE, "700101000001Z"), None);
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

//! The meaning of a failure: was nothing of the request sent, or is its outcome unknown?
//!
//! The table in docs/upstream.md says the same, row by row. No other file of this room judges an
//! exchange. A failure that is not surely "not sent" must be unknown.

use std::error::Error;
use std::io;

use rustls::AlertDescription;

use crate::ports::upstream::SendError;

#[derive(Debug)]
pub enum Failure {
    /// The name has no address, or its resolver does not answer.
    NoAddress(String),
    /// No endpoint took a connection, or any byte on it: refused, timed out, its handshake failed,
    /// or hyper gave the request back (RFC 9112 section 9.3.1). The last reason.
    NoConnection(String),
    /// All endpoints have as many connections as they may.
    NoSlot { most: usize },
    /// The time was over before a byte was written.
    NoTime,
    /// The right to send ended before a byte was written.
    NoRight,
    /// The connection broke after the request was handed to it.
    Broken {
        error: hyper::Error,
        /// True if the handshake was TLS 1.3's and nothing but one alert was read since: then the
        /// server may not have ended it (RFC 8446 section 4.4.2.4), and has given no byte of the
        /// request to its application.
        unfinished: bool,
    },
    /// The answer cannot be believed.
    Unusable(String),
    /// The time was over after a byte may have been written.
    Silent,
}

impl From<Failure> for SendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoAddress(why) | Failure::NoConnection(why) => Self::NotSent(why),
            Failure::NoSlot { most } => Self::NotSent(format!("all {most} connections are in use")),
            Failure::NoTime => Self::NotSent("no time is left".into()),
            Failure::NoRight => Self::NotSent("the right to send ended before a byte was written".into()),
            Failure::Broken { error, unfinished: true } if refuses_a_certificate(&error) => {
                Self::NotSent(format!("the upstream refuses our certificate: {}", describe(&error)))
            }
            Failure::Broken { error, .. } => Self::Unknown(describe(&error)),
            Failure::Unusable(why) => Self::Unknown(why),
            Failure::Silent => Self::Late("no answer in time".into()),
        }
    }
}

/// True if the cause is an alert by which a server refuses a client's certificate (RFC 8446 section
/// 6.2). An `access_denied` is none: a service may send it later.
fn refuses_a_certificate(error: &hyper::Error) -> bool {
    let alert = |error: &(dyn Error + 'static)| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)?;
        let rustls::Error::AlertReceived(alert) = inner.downcast_ref::<rustls::Error>()? else { return None };
        Some(*alert)
    };
    use AlertDescription::*;
    matches!(
        causes(error).find_map(alert),
        Some(
            BadCertificate
                | UnsupportedCertificate
                | CertificateRevoked
                | CertificateExpired
                | CertificateUnknown
                | UnknownCA
                | CertificateRequired
        )
    )
}

fn causes(error: &hyper::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// Writes an error with its causes in one line.
pub fn describe(error: &hyper::Error) -> String {
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

//! Classification of failures: the only place that turns Postgres' errors into outcomes.
//!
//! The text is a SQLSTATE and our own words. It must never contain a message, DETAIL or parameter
//! of the server, which may hold a key. This file must not know what the statement was for.

use std::error::Error as _;

use deadpool_postgres::PoolError;
use rustls::CertificateError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::tls::Unusable;
use crate::ports::store::StoreError;

/// The result of a call.
pub(super) type Called<T> = Result<T, StoreError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// A write that commits by itself.
    Writes,
}

/// No connection, or the statement could not be prepared. It was never sent.
pub(super) fn not_sent(what: &str, why: &str) -> StoreError {
    StoreError::Definite(format!("{what}: {why}"))
}

pub(super) fn no_connection(what: &str, error: &PoolError) -> StoreError {
    let why = match error {
        PoolError::Backend(error) => format!("cannot connect, {}", describe(error)),
        PoolError::Timeout(_) => "no free connection in time".to_owned(),
        PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            "the connection pool is closed".to_owned()
        }
    };
    not_sent(what, &why)
}

pub(super) fn is_refused_login(error: &PoolError) -> bool {
    let PoolError::Backend(error) = error else { return false };
    error.code().is_some_and(|code| {
        [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code)
    })
}

/// The statement was sent and failed.
pub(super) fn failed(what: &str, effect: Effect, error: &Error) -> StoreError {
    let text = format!("{what}: {}", describe(error));
    let unknown = error.as_db_error().is_none_or(|error| !nothing_written(error));
    after_sending(effect, unknown, text)
}

/// The statement was sent and no answer came.
pub(super) fn silent(what: &str, effect: Effect, millis: u128) -> StoreError {
    after_sending(effect, true, format!("{what}: no answer within {millis} ms"))
}

/// The statement succeeded and its answer cannot be read.
pub(super) fn unreadable(what: &str, effect: Effect, why: &str) -> StoreError {
    after_sending(effect, true, format!("{what}: cannot read the answer: {why}"))
}

fn after_sending(effect: Effect, unknown: bool, text: String) -> StoreError {
    match effect {
        Effect::Writes if unknown => StoreError::Unknown(text),
        Effect::Reads | Effect::Writes => StoreError::Definite(text),
    }
}

/// True if the connection may serve another call. If the server lost a plan, a new one helps.
pub(super) fn reusable(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        nothing_written(error)
            && *error.code() != SqlState::FEATURE_NOT_SUPPORTED
            && *error.code() != SqlState::INVALID_SQL_STATEMENT_NAME
    })
}

/// True if the server answered the question. It did not if it cancelled a late statement, waited
/// too long for a lock, is starting or stopping, or takes no more connections.
pub(super) fn is_answer(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| answers(error.code().code()))
}

fn answers(code: &str) -> bool {
    !(code.starts_with("57") || code.starts_with("08") || code == "55P03" || code == "53300")
}

/// True if an error proves that nothing was written. An ERROR aborts an autocommit statement. Some
/// errors may come after the commit record was written: FATAL and PANIC, the end of the server
/// (57P), a broken connection (08) and "completion unknown" (40003).
fn nothing_written(error: &DbError) -> bool {
    let ended = matches!(error.parsed_severity(), None | Some(Severity::Panic | Severity::Fatal));
    let code = error.code().code();
    !(ended || code.starts_with("08") || code.starts_with("57P") || code == "40003")
}

/// Writes an error in our own words.
pub(super) fn describe(error: &Error) -> String {
    if let Some(code) = error.code() {
        return with_meaning(code.code());
    }
    let io = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    if let Some(describe) = of_tls(error, io) {
        return describe;
    }
    match io {
        Some(io) => format!("connection failed ({:?})", io.kind()),
        None if error.is_closed() => "connection closed".to_owned(),
        None => "connection or protocol failure".to_owned(),
    }
}

/// A SQLSTATE with its usual reason, and the next thing to do.
pub(super) fn with_meaning(code: &str) -> String {
    let meaning = match code {
        "28P01" => "the password is wrong: put the role's own into the URL",
        "3D000" => "there is no such database: make it, as by `createdb`",
        "42P01" => "a table is missing: run `onceway store init`",
        "42501" => "the role lacks a right: run `onceway store init`, which grants what it needs",
        "53300" => "the server takes no more connections: raise max_connections, or lower pool under [store]",
        "57P03" => "the server is starting or stopping: its log says why",
        "08006" => "the connection broke: look at the network and at the server's log",
        "25006" => "the server is read-only, as a standby is: name the primary in the URL",
        "0A000" => {
            "the server does not do that: Postgres 15 or newer is needed, reached without a pooler of statements"
        }
        "55006" => "another session uses it: end that session, then run this again",
        _ => return format!("SQLSTATE {code}"),
    };
    format!("SQLSTATE {code}: {meaning}")
}

/// Writes an error of TLS, which comes before Postgres' protocol. Certificates are not secret.
fn of_tls(error: &Error, io: Option<&std::io::Error>) -> Option<String> {
    let cause = error.source()?;
    if let Some(unusable) = cause.downcast_ref::<Unusable>() {
        return Some(unusable.to_string());
    }
    // The client has no type for this one.
    if cause.to_string() == "server does not support TLS" {
        return Some("the server speaks no TLS, and sslmode asks for it: set ssl = on there".to_owned());
    }
    let rustls = io?.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match rustls {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the server's certificate is of no authority that sslrootcert names".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate does not name the host that was asked for".to_owned(),
        rustls::Error::InvalidCertificate(why) => format!("the server's certificate is refused: {why}"),
        other => format!("TLS failed: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_count_as_answers_and_timeouts_do_not() {
        for code in ["23505", "25006", "53100", "42501", "0A000"] {
            assert!(answers(code), "{code}");
        }
        for code in ["57014", "57P01", "57P03", "55P03", "53300", "08006"] {
            assert!(!answers(code), "{code}");
        }
    }

    #[test]
    fn usual_states_say_what_to_do() {
        for code in ["28P01", "3D000", "42P01", "42501", "53300", "57P03", "08006", "25006", "0A000", "55006"]
        {
            let described = with_meaning(code);
            assert!(described.starts_with(&format!("SQLSTATE {code}: ")), "{described}");
        }
        assert_eq!(with_meaning("23505"), "SQLSTATE 23505");
    }

    #[test]
    fn reads_never_leave_doubt_and_writes_do_when_silent() {
        assert!(matches!(silent("a look-up", Effect::Reads, 9), StoreError::Definite(_)));
        let StoreError::Unknown(text) = silent("a claim", Effect::Writes, 9) else {
            panic!("a silent write is unknown");
        };
        assert_eq!(text, "a claim: no answer within 9 ms");
        assert!(matches!(not_sent("a claim", "late"), StoreError::Definite(_)));
        assert!(matches!(unreadable("a claim", Effect::Writes, "x"), StoreError::Unknown(_)));
    }
}

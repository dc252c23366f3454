//! One HTTP connection from its first request to its end: by itself, by a stop, or by a cut.
//!
//! Every listener drives its connections here. This file must not know what the requests ask.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use tokio::time::timeout;

use super::Stop;
use super::idle_watch::Cut;

/// Longest time for a connection that was idle to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

pub trait Connection: Future<Output = hyper::Result<()>> {
    /// Takes no more requests, and ends once the requests so far are answered.
    fn finish(self: Pin<&mut Self>);
}

impl<I, S, B> Connection for http1::Connection<I, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    I: Read + Write + Unpin + 'static,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, B, E> Connection for http2::Connection<I, S, E>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    I: Read + Write + Unpin + 'static,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    E: Http2ServerConnExec<S::Future, B>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<C: Connection + Unpin> Connection for &mut C {
    fn finish(mut self: Pin<&mut Self>) {
        Pin::new(&mut **self).finish();
    }
}

/// Serves until the connection ends.
///
/// After a stop it takes no more requests. When `cut` completes, the connection is ended: gently if
/// it was idle, at once otherwise.
///
/// # Errors
/// Why the connection broke.
pub async fn drive<C: Connection>(
    connection: C,
    stop: &mut Stop,
    cut: impl Future<Output = Cut>,
) -> Result<(), String> {
    let mut connection = std::pin::pin!(connection);
    let cut = tokio::select! {
        biased;
        ended = &mut connection => return ended.map_err(|error| said(&error)),
        () = stop.wait() => None,
        cut = cut => Some(cut),
    };
    match cut {
        None => {
            connection.as_mut().finish();
            connection.await.map_err(|error| said(&error))
        }
        Some(Cut::Idle) => {
            connection.as_mut().finish();
            // An error means that the client does not say goodbye. Dropping the connection is all
            // that is left to do.
            drop(timeout(GOODBYE, connection).await);
            Ok(())
        }
        Some(Cut::Stalled) => Err("cut: an answer was not read in time".to_owned()),
        Some(Cut::GivenUp) => Err("cut: too many requests were given up".to_owned()),
    }
}

fn said(error: &hyper::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

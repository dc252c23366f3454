//! Connections of the admin listener: their number, their time, and places for health checks.
//!
//! A liveness probe that gets no answer kills a healthy process. So `/healthz` and `/readyz` have
//! places of their own. When all others are taken, or the caller's address has too many, a new
//! connection may ask only for these two paths. It gets a short time, and the oldest such
//! connection makes room for the newest.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use http::header::CONNECTION;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::admin_http::{Answer, problem};
use super::connection::{Paced, drive};
use super::connection_limit::Places;
use super::{Listeners, Replaceable, Stop, locked};
use crate::adapters::tls;
use crate::config::admin::Admin;
use crate::config::listen::TlsFiles;

/// Most connections at a time that may ask anything.
const MOST: usize = 100;
/// Most places of one address. The others are for operators and scrapers at other addresses.
const MOST_OF_ADDRESS: usize = 80;
/// Most further connections, which may ask only for health.
const KEPT: usize = 32;
/// Most connections at a time, and one more that is about to make room.
pub(super) const MOST_CONNECTIONS: usize = MOST + KEPT + 1;
/// Longest time for a request's head, and longest silence between two requests.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Longest time in which a caller reads nothing of an answer.
const WRITE_STALL: Duration = Duration::from_secs(10);
/// Longest time for a connection that may ask only for health.
const HEALTH_TIME: Duration = Duration::from_secs(2);

/// TLS settings of an admin listener, if it has any. Blocks: it reads the files.
pub(super) fn tls(admin: &Admin) -> Result<Option<ServerConfig>> {
    let mut config = loaded(admin.tls.as_ref(), "[admin.tls]")?;
    if let Some(config) = &mut config {
        config.alpn_protocols.retain(|protocol| protocol != tls::HTTP2);
    }
    Ok(config)
}

/// TLS settings from the files that this section names. Blocks: it reads them.
pub(super) fn loaded(files: Option<&TlsFiles>, section: &str) -> Result<Option<ServerConfig>> {
    let Some(files) = files else { return Ok(None) };
    let config = tls::load(&files.certificate, &files.key).map_err(|error| {
        let setting = if error.path() == Some(&files.key) { "key" } else { "certificate" };
        anyhow::Error::new(error).context(format!("{section} {setting}"))
    })?;
    Ok(Some(config))
}

pub(super) trait Answers: Send + Sync + 'static {
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Listens in the background, over TLS if there is a configuration for it.
pub(super) fn listen<A: Answers>(
    listeners: &mut Listeners,
    listener: TcpListener,
    tls: Option<Replaceable<ServerConfig>>,
    admin: Arc<A>,
) {
    let (most, places, kept) =
        (Arc::new(Semaphore::new(MOST)), Arc::<Places>::default(), Arc::<Kept>::default());
    let serve = move |stream, address: SocketAddr, stop| {
        let (admin, tls) = (admin.clone(), tls.as_ref().map(|tls| TlsAcceptor::from(tls.now())));
        let place = places.take(address.ip(), MOST_OF_ADDRESS);
        let seat = match (place, most.clone().try_acquire_owned()) {
            (Some(place), Ok(permit)) => Ok((place, permit)),
            // Health only, until the receiver ends.
            (_, _) => Err(kept.take()),
        };
        async move {
            match seat {
                Ok(seat) => {
                    accept(stream, tls, stop, &*admin).await;
                    drop(seat);
                }
                Err(evicted) => {
                    let health = Health(admin);
                    tokio::select! {
                        biased;
                        _ = evicted => {}
                        _ = timeout(HEALTH_TIME, accept(stream, tls, stop, &health)) => {}
                    }
                }
            }
        }
    };
    listeners.add(listener, || MOST_CONNECTIONS, serve);
}

/// The connections that may ask only for health, the oldest first.
#[derive(Default)]
struct Kept(Mutex<VecDeque<oneshot::Sender<()>>>);

impl Kept {
    /// Adds one. If all places are taken, ends the oldest.
    fn take(&self) -> oneshot::Receiver<()> {
        let mut all = locked(&self.0);
        all.retain(|one| !one.is_closed());
        if all.len() >= KEPT {
            all.pop_front();
        }
        let (end, ended) = oneshot::channel();
        all.push_back(end);
        ended
    }
}

/// Answers about health only, and ends the connection.
struct Health<A>(Arc<A>);

impl<A: Answers> Answers for Health<A> {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let mut answer = match request.uri().path() {
            "/healthz" | "/readyz" => self.0.answer(request).await,
            _ => problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "all places of the admin listener, or of this address, are taken: close connections that are not used, or ask again; /healthz and /readyz are answered",
            ),
        };
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    }
}

async fn accept(stream: TcpStream, tls: Option<TlsAcceptor>, mut stop: Stop, admin: &impl Answers) {
    let stream = Paced::new(stream, WRITE_STALL);
    let Some(tls) = tls else { return serve(stream, stop, admin).await };
    tokio::select! {
        biased;
        () = stop.wait() => {}
        accepted = timeout(HEAD_TIME, tls.accept(stream)) => match accepted {
            Ok(Ok(stream)) => serve(stream, stop, admin).await,
            Ok(Err(why)) => tracing::debug!(%why, "a caller of the admin listener made no TLS connection"),
            Err(_) => {}
        },
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, mut stop: Stop, admin: &impl Answers) {
    let answered = service_fn(|request| async move { Ok::<_, Infallible>(admin.answer(request).await) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), answered);
    let finish = http1::Connection::graceful_shutdown;
    // An error means that the caller hung up.
    drop(drive(pin!(connection), finish, &mut stop, std::future::pending()).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_admin_connection_makes_room() {
        let kept = Kept::default();
        let mut all: VecDeque<_> = (0..KEPT).map(|_| kept.take()).collect();
        drop(all.pop_back());
        all.push_back(kept.take());
        let still =
            |one: &mut oneshot::Receiver<()>| one.try_recv() == Err(oneshot::error::TryRecvError::Empty);
        assert!(all.iter_mut().all(still), "one had ended");
        all.push_back(kept.take());
        assert!(!still(&mut all[0]), "the oldest");
        assert!(all.iter_mut().skip(1).all(still));
        assert_eq!(locked(&kept.0).len(), KEPT);
    }
}

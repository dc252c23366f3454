//! The doors for clients over real sockets: allowed addresses, trusted headers, and the request
//! that the service gets.
//!
//! `server::listener_kind` has the rules one by one; `tests/suites/credentials` has a whole gateway
//! behind such doors. It must not use a client library.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Request, Response};
use onceway::config::listen::PublicLimits;
use onceway::config::trusted::{Network, Trusted};
use onceway::gateway::credentials::Vouched;
use onceway::ports::Body;
use onceway::ports::body::full;
use onceway::server::listener_kind::Door;
use onceway::server::public::listen;
use onceway::server::{Listeners, PublicService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::net::support::soon;

/// A service that answers with the caller's identity, as the door passed it.
struct Teller;

impl PublicService for Teller {
    async fn call(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let headers = request.headers();
        let passed = headers.contains_key("x-tenant") || headers.contains_key("x-user");
        let who = match request.extensions().get::<Vouched>() {
            None => "nobody vouched for",
            Some(Vouched(None)) => "vouched for nobody",
            Some(Vouched(Some(caller))) => caller.tenant.as_str(),
        };
        Response::new(full(format!("<{who}, passed on: {passed}>")))
    }
}

fn front(from: &[&str]) -> Arc<Trusted> {
    Arc::new(Trusted {
        address: "127.0.0.1:1".parse().unwrap(),
        tenant_header: HeaderName::from_static("x-tenant"),
        principal_header: Some(HeaderName::from_static("x-user")),
        from: from.iter().map(|network| Network::parse(network).unwrap()).collect(),
    })
}

/// Sends one request to a door of its own. Returns the whole answer.
async fn ask(door: Door, lines: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut listeners = Listeners::new(Duration::from_secs(20));
    listen(&mut listeners, listener, None, Arc::new(Teller), PublicLimits::default(), door, &Arc::default());
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n");
    // A refused connection may be gone before this is written.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = soon(stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8(answer).unwrap();
    answer.split_once('<').map(|(_, told)| told.trim_end_matches('>').to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn a_tenant_in_a_header_counts_at_the_trusted_door_only() {
    let said = "X-Tenant: acme\r\nX-User: ann\r\n";
    assert_eq!(ask(Door::Trusted(front(&[])), said).await, "acme, passed on: false");
    assert_eq!(ask(Door::Public(Some(front(&[]))), said).await, "nobody vouched for, passed on: false");
    assert_eq!(ask(Door::Trusted(front(&[])), "").await, "vouched for nobody, passed on: false");
    let two = "X-Tenant: acme\r\nX-Tenant: globex\r\n";
    assert_eq!(ask(Door::Trusted(front(&[])), two).await, "vouched for nobody, passed on: false");
}

#[tokio::test]
async fn only_the_fronts_addresses_get_in_at_the_trusted_door() {
    let said = "X-Tenant: acme\r\n";
    assert_eq!(ask(Door::Trusted(front(&["127.0.0.0/8"])), said).await, "acme, passed on: false");
    assert_eq!(ask(Door::Trusted(front(&["192.0.2.0/24", "::1"])), said).await, "");
    assert_eq!(
        ask(Door::Public(Some(front(&["192.0.2.0/24"]))), "").await,
        "nobody vouched for, passed on: false"
    );
}

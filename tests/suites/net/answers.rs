//! Answers of the upstream that two readers could take differently: their outcome is unknown.
//!
//! `upstream` tests other requests and failures. It must not tidy up the server's bytes.

use onceway::ports::Upstream;
use onceway::ports::upstream::SendError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::net::support::{RawServer, Then, read_request, soon, text};
use crate::net::upstream::{LONG, OK, always, at, send};

/// Sends a request that gets this answer, and returns the result.
async fn sent(answer: &'static str) -> Result<http::Response<onceway::ports::Body>, SendError> {
    let server = RawServer::start(Then::Answer(answer)).await;
    let sent = soon(at(&server.address).send(send(&[]), LONG, always)).await;
    assert_eq!(server.seen().len(), 1, "{answer:?}");
    sent
}

#[tokio::test]
async fn an_answer_that_two_readers_take_differently_is_unknown() {
    for answer in [
        "HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: forged=1\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nhi",
        "HTTP/1.1 103 Early Hints\r\nLink: x\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        assert!(matches!(sent(answer).await, Err(SendError::Unknown(_))), "{answer:?}");
    }
    let body = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na\n\nb";
    assert_eq!(text(sent(body).await.unwrap().into_body()).await, "a\n\nb", "a body may hold anything");
}

#[tokio::test]
async fn each_answer_on_a_kept_connection_is_judged() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for answer in [OK, OK, "HTTP/1.1 200 OK\r\nX: a\nY: b\r\nContent-Length: 2\r\n\r\nhi"] {
            read_request(&mut stream).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
    });
    let upstream = at(&address);
    for _ in 0..2 {
        text(soon(upstream.send(send(&[]), LONG, always)).await.unwrap().into_body()).await;
    }
    assert!(matches!(soon(upstream.send(send(&[]), LONG, always)).await, Err(SendError::Unknown(_))));
}

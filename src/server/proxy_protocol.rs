//! The PROXY protocol, version 2: the client's address before its first byte, from a load balancer.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>; the `ppp` crate reads the header.
//! No byte beyond it is taken.

use std::io;
use std::net::IpAddr;

use ppp::v2::{Addresses, Command, Header};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes up to and with the length of the rest.
const BEGIN: usize = 16;
/// Longest rest: room for addresses, and for the notes that balancers add.
const MOST: usize = 2_048;

/// Reads the header: the client's address, or `None` if the proxy speaks for itself. The error: the
/// bytes are no such header, or the connection ended.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut bytes = vec![0; BEGIN];
    stream.read_exact(&mut bytes).await?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("PROXY protocol: {why}"));
    if !bytes.starts_with(ppp::v2::PROTOCOL_PREFIX) {
        return Err(wrong("the connection does not begin with a header of version 2"));
    }
    let rest = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if rest > MOST {
        return Err(wrong("the header is too long"));
    }
    bytes.resize(BEGIN + rest, 0);
    stream.read_exact(&mut bytes[BEGIN..]).await?;
    let header = Header::try_from(&bytes[..]).map_err(|error| wrong(&error.to_string()))?;
    match (header.command, header.addresses) {
        (Command::Local, _) => Ok(None),
        (Command::Proxy, Addresses::IPv4(from)) => Ok(Some(from.source_address.into())),
        (Command::Proxy, Addresses::IPv6(from)) => Ok(Some(from.source_address.into())),
        (Command::Proxy, Addresses::Unspecified | Addresses::Unix(_)) => {
            Err(wrong("the header names no IP address"))
        }
    }
}

#[cfg(test)]
mod tests {
    use ppp::v2::{Builder, Protocol, Version};

    use super::*;

    fn header(command: Command) -> Vec<u8> {
        let from: std::net::SocketAddr = "203.0.113.9:4711".parse().unwrap();
        let to: std::net::SocketAddr = "10.0.0.1:443".parse().unwrap();
        let addresses = Addresses::from((from, to));
        Builder::with_addresses(Version::Two | command, Protocol::Stream, addresses).build().unwrap()
    }

    #[tokio::test]
    async fn a_header_names_the_client_and_what_follows_is_left() {
        let mut bytes = header(Command::Proxy);
        bytes.extend_from_slice(b"GET /");
        let mut stream = &bytes[..];
        assert_eq!(read(&mut stream).await.unwrap(), Some("203.0.113.9".parse().unwrap()));
        assert_eq!(stream, b"GET /");
        assert_eq!(read(&mut &header(Command::Local)[..]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_connection_without_a_proxy_header_is_refused() {
        let whole = header(Command::Proxy);
        for cut in 0..whole.len() {
            assert!(read(&mut &whole[..cut]).await.is_err(), "{cut}");
        }
        let mut long = whole.clone();
        (long[14], long[15]) = (0xff, 0xff);
        long.resize(70_000, 0);
        let mut unknown = whole.clone();
        unknown[12] = 0x31;
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
            &long,
            &unknown,
        ] {
            assert!(read(&mut &bytes[..]).await.is_err());
        }
    }
}

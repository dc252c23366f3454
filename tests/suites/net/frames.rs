//! HTTP/2 written by hand: frames, header blocks without compression, and a raw connection that
//! sends what no client library sends. It keeps no rule of the protocol for the caller.

use crate::net::support::*;
use std::collections::VecDeque;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block: each field literal, never indexed, not Huffman-coded (RFC 7541 section 6.2.3).
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0x10);
        for text in [name.as_ref(), value.as_ref()] {
            length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// A 7-bit prefix integer (RFC 7541 section 5.1).
fn length(block: &mut Vec<u8>, mut length: usize) {
    if length < 127 {
        block.push(length as u8);
        return;
    }
    block.push(127);
    length -= 127;
    while length >= 128 {
        block.push((length % 128 + 128) as u8);
        length /= 128;
    }
    block.push(length as u8);
}

pub fn request(method: &str, path: &str, others: &[(&str, &[u8])]) -> Vec<u8> {
    let pseudo: [(&str, &[u8]); 4] = [
        (":method", method.as_bytes()),
        (":scheme", b"http"),
        (":authority", b"a"),
        (":path", path.as_bytes()),
    ];
    block(&[&pseudo[..], others].concat())
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answer(String),
    Reset,
    Closed,
}

impl Outcome {
    /// True if the stream was refused, or its answer says so.
    pub fn is_refusal(&self, says: &str) -> bool {
        match self {
            Outcome::Reset | Outcome::Closed => true,
            Outcome::Answer(body) => body.contains(says),
        }
    }
}

pub struct Raw {
    stream: TcpStream,
    read: VecDeque<u8>,
}

impl Raw {
    /// Connects, and begins with these settings (id, value).
    pub async fn connect(address: &str, settings: &[(u16, u32)]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat()).await.unwrap();
        Self { stream, read: VecDeque::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Sends the same bytes over and over, until the connection takes no more.
    pub async fn flood(&mut self, bytes: &[u8]) {
        let mut sent = 0;
        while self.send(bytes).await {
            sent += bytes.len();
            assert!(sent < 1 << 30, "it is still read");
        }
    }

    pub async fn post(&mut self, stream: u32, block: &[u8], body: &[u8]) {
        self.send(&frame(HEADERS, END_HEADERS, stream, block)).await;
        self.send(&frame(DATA, END_STREAM, stream, body)).await;
    }

    pub async fn ask(&mut self, stream: u32, block: &[u8]) -> bool {
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, block)).await
    }

    /// The next frame; `None` when the connection is over. Settings are acknowledged.
    pub async fn next(&mut self) -> Option<Frame> {
        let head = self.exactly(9).await?;
        let size = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = self.exactly(size).await?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let found = Frame { kind: head[3], flags: head[4], stream, payload };
        if found.kind == SETTINGS && found.flags & ACK == 0 {
            self.send(&frame(SETTINGS, ACK, 0, &[])).await;
        }
        Some(found)
    }

    pub async fn outcome(&mut self, stream: u32) -> Outcome {
        let mut body = Vec::new();
        while let Some(found) = self.next().await {
            if found.stream != stream {
                continue;
            }
            match found.kind {
                RST_STREAM => return Outcome::Reset,
                DATA => body.extend_from_slice(&found.payload),
                _ => {}
            }
            if matches!(found.kind, DATA | HEADERS) && found.flags & END_STREAM != 0 {
                return Outcome::Answer(String::from_utf8(body).unwrap());
            }
        }
        Outcome::Closed
    }

    /// Reads until the connection is over. Returns the server's error code, if it sent one.
    pub async fn over(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(found) = self.next().await {
            if found.kind == GOAWAY {
                code = Some(u32::from_be_bytes(found.payload[4..8].try_into().unwrap()));
            }
        }
        code
    }

    /// Within a header block every other frame is an error, so it answers nothing.
    pub async fn silently_over(&mut self) {
        while self.stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
    }

    async fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.read.len() < count {
            let mut piece = [0; 16 * 1024];
            let read = tokio::time::timeout(Duration::from_secs(20), self.stream.read(&mut piece));
            // A reset is an end, too.
            let got = read.await.expect("nothing came").ok().filter(|got| *got > 0)?;
            self.read.extend(&piece[..got]);
        }
        Some(self.read.drain(..count).collect())
    }
}

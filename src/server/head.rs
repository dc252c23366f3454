//! The head of an HTTP/1 request, judged byte by byte before hyper sees it, and refusals.
//!
//! A refused request never reaches the gateway. Nothing was done, so it may be sent again. The
//! problems are rows of `gateway::request::problems`, like the gateway's own.
//!
//! The heads that pass are a strict subset of those that hyper takes: the same crate parses names
//! and targets, and values have its rule. So hyper never has to refuse a head in its own words. The
//! rules are RFC 9112 sections 2 to 6. [`super::guard`] gathers the bytes.

use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderName, Method, Response, StatusCode, Uri, Version};

use crate::gateway::policy::route::Dialect;
use crate::gateway::request::problems::{Kind, Problem, described_by};
use crate::ports::Body;
use crate::ports::body::full;

pub const MOST_HEADERS: usize = 100;
/// Largest head of a request, in bytes.
pub const HEAD_LIMIT: usize = 64 * 1024;

/// End of the body that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After this many bytes; 0 if there is no body.
    Length(u64),
    /// With the last chunk.
    Chunked,
}

/// Looks for the end of the head in `raw`. The first `from` bytes were looked at before.
///
/// `Some` is the head's length with its empty line. The error is the first byte that no head may
/// hold: a line end that is not CR LF, or a control character.
pub fn end(raw: &[u8], from: usize) -> Result<Option<usize>, Problem> {
    for at in from..raw.len() {
        let after_cr = at > 0 && raw[at - 1] == b'\r';
        match raw[at] {
            b'\n' if raw[..=at].ends_with(b"\r\n\r\n") => return Ok(Some(at + 1)),
            b'\n' if after_cr => {}
            b'\n' => return Err(malformed("a line ends with LF alone: end lines with CR LF")),
            _ if after_cr => return Err(malformed("a CR stands without its LF")),
            b'\r' | b'\t' => {}
            0..0x20 | 0x7f => return Err(malformed("the head holds a control character")),
            _ => {}
        }
    }
    match raw.len() > HEAD_LIMIT {
        true => Err(Kind::HeadTooLarge.said(format!("a head may have at most {HEAD_LIMIT} bytes"))),
        false => Ok(None),
    }
}

/// Judges a whole head, as [`end`] delimited it, and returns the end of its body. The error is the
/// flaw: malformed, or open to two readings.
pub fn framing(head: &[u8]) -> Result<Framing, Problem> {
    let lines = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    let mut lines = lines.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let version = request_line(lines.next().unwrap_or_default())?;
    // The number of each, and the value of the last one.
    let (mut count, mut lengths, mut codings) = (0, (0, &b""[..]), (0, &b""[..]));
    for line in lines {
        count += 1;
        if count > MOST_HEADERS {
            return Err(Kind::HeadTooLarge.said(format!("a request may have at most {MOST_HEADERS} headers")));
        }
        let (name, value) = field(line)?;
        if name == CONTENT_LENGTH {
            lengths = (lengths.0 + 1, value);
        } else if name == TRANSFER_ENCODING {
            codings = (codings.0 + 1, value);
        }
    }
    match (lengths, codings) {
        ((0, _), (0, _)) => Ok(Framing::Length(0)),
        ((1, length), (0, _)) => digits(length).map(Framing::Length),
        ((0, _), (1, coding)) if coding.eq_ignore_ascii_case(b"chunked") => match version {
            Version::HTTP_10 => Err(malformed("HTTP/1.0 has no Transfer-Encoding")),
            _ => Ok(Framing::Chunked),
        },
        ((0, _), _) => Err(malformed("Transfer-Encoding must be exactly: chunked")),
        (_, (0, _)) => Err(malformed("send exactly one Content-Length")),
        (_, _) => Err(malformed("Content-Length and Transfer-Encoding stand side by side: send one of them")),
    }
}

/// Checks the request line: method, target and version with one space between.
fn request_line(line: &[u8]) -> Result<Version, Problem> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed("the request line must be a method, a target and a version"));
    };
    Method::from_bytes(method).map_err(|_| malformed("the method is malformed"))?;
    if !target.is_ascii() {
        return Err(malformed("the target must be ASCII: write other characters as %XX"));
    }
    Uri::try_from(target).map_err(|_| malformed("the target is malformed"))?;
    match version {
        b"HTTP/1.1" => Ok(Version::HTTP_11),
        b"HTTP/1.0" => Ok(Version::HTTP_10),
        _ => Err(malformed("the version must be HTTP/1.1 or HTTP/1.0, or begin an HTTP/2 connection")),
    }
}

/// Name of a field line, and its value without the white space around it.
fn field(line: &[u8]) -> Result<(HeaderName, &[u8]), Problem> {
    if line.first().is_some_and(|byte| b" \t".contains(byte)) {
        return Err(malformed("a header is folded over two lines"));
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = line.split_at(colon.ok_or_else(|| malformed("a header has no colon"))?);
    // Also refuses white space between name and colon: readers take it in different ways.
    let name = HeaderName::from_bytes(name).map_err(|_| malformed("a header's name is malformed"))?;
    let value = value[1..].trim_ascii();
    if is_value(value) { Ok((name, value)) } else { Err(malformed("a header's value is malformed")) }
}

/// The rule of `HeaderValue::from_bytes`, without its copy.
fn is_value(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f))
}

fn digits(text: &[u8]) -> Result<u64, Problem> {
    let all_digits = !text.is_empty() && text.len() < 20 && text.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(text).ok().filter(|_| all_digits).and_then(|text| text.parse().ok());
    number.ok_or_else(|| malformed("Content-Length must be one number of bytes"))
}

/// A request that is open to two readings, or asks for something that is never passed on.
pub fn malformed(detail: &'static str) -> Problem {
    Kind::BadRequest.said(detail)
}

/// A head for which the budget has no room.
pub fn no_room_for_head() -> Problem {
    Kind::Overloaded.said("the heads of all requests together are as large as they may be: send a smaller head, or send it again")
}

pub fn response(problem: &Problem) -> Response<Body> {
    let mut response = Response::new(full(problem.to_json(Dialect::Plain)));
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Ok(link) = HeaderValue::from_str(&described_by(problem.code())) {
        headers.insert(LINK, link);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::body::{Collected, collect};

    fn judge(raw: &[u8]) -> Result<Framing, Problem> {
        match end(raw, 0)? {
            Some(end) => framing(&raw[..end]),
            None => panic!("no end in {:?}", raw.escape_ascii().to_string()),
        }
    }

    fn with(lines: &str) -> Result<Framing, Problem> {
        judge(format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
    }

    #[test]
    fn unambiguous_heads_pass() {
        let table = [
            ("", Framing::Length(0)),
            ("Content-Length: 0\r\n", Framing::Length(0)),
            ("content-length:\t12 \r\n", Framing::Length(12)),
            ("Content-Length: 0012\r\n", Framing::Length(12)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
            ("x: \u{e9}\r\ny:\r\n", Framing::Length(0)),
        ];
        for (lines, expected) in table {
            assert_eq!(with(lines), Ok(expected), "{lines:?}");
        }
        assert_eq!(judge(b"GET * HTTP/1.0\r\n\r\n"), Ok(Framing::Length(0)));
    }

    #[test]
    fn a_value_is_what_the_http_crate_takes() {
        for byte in 0..=u8::MAX {
            assert_eq!(
                is_value(&[b'a', byte]),
                http::HeaderValue::from_bytes(&[b'a', byte]).is_ok(),
                "{byte}"
            );
        }
    }

    #[test]
    fn lengths_and_codings_in_doubt_are_refused() {
        for lines in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: 1 1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding:\r\n",
        ] {
            assert_eq!(with(lines).map_err(|problem| problem.status), Err(400), "{lines:?}");
        }
        let zero = judge(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(zero.map_err(|problem| problem.status), Err(400));
    }

    #[test]
    fn lines_in_doubt_are_refused() {
        for raw in [
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\rx: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nx: 1\r\n 2\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost\r\n\r\n",
            "GET / HTTP/1.1\r\n: a\r\n\r\n",
            "GET / HTTP/1.1\r\nx: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nx: a\u{b}b\r\n\r\n",
            "GET / HTTP/1.1\r\nx: a\u{7f}b\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / x HTTP/1.1\r\n\r\n",
            "GET\t/\tHTTP/1.1\r\n\r\n",
            "GET / HTTP/1.2\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / http/1.1\r\n\r\n",
            "GET /\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\n\r\n",
            "G(T / HTTP/1.1\r\n\r\n",
            "\u{feff}GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 \r\n\r\n",
        ] {
            let refused = judge(raw.as_bytes()).map_err(|problem| problem.status);
            assert_eq!(refused, Err(400), "{raw:?}");
        }
    }

    #[test]
    fn a_head_is_bounded_in_bytes_and_in_headers() {
        let lines = |count: usize| "x: 1\r\n".repeat(count);
        assert_eq!(with(&lines(MOST_HEADERS - 1)), Ok(Framing::Length(0)));
        assert_eq!(with(&lines(MOST_HEADERS)).unwrap_err().status, 431);
        let endless = format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(HEAD_LIMIT));
        assert_eq!(end(endless.as_bytes(), 0).unwrap_err().status, 431);
        assert_eq!(end(&endless.as_bytes()[..HEAD_LIMIT], 0), Ok(None));
    }

    #[test]
    fn the_end_is_found_wherever_the_bytes_were_cut() {
        let raw = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        for cut in 0..raw.len() {
            let from = match end(&raw[..cut], 0) {
                Ok(None) => cut,
                Ok(Some(end)) => {
                    assert!(end == raw.len() - 4 && cut >= end);
                    continue;
                }
                Err(problem) => panic!("{problem:?}"),
            };
            assert_eq!(end(raw, from), Ok(Some(raw.len() - 4)), "{cut}");
        }
    }

    #[tokio::test]
    async fn a_problem_is_json_with_all_its_members() {
        let response = response(&malformed("two \"Host\" headers"));
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(
            response.headers()["link"],
            "</.well-known/onceway/problems#bad-request>; rel=\"describedby\""
        );
        let Ok(Collected::Whole(json)) = collect(response.into_body(), 1000).await else {
            panic!("a whole body")
        };
        let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(
            document,
            serde_json::json!({
                "type": "urn:onceway:problem:bad-request",
                "title": "The request is malformed",
                "status": 400,
                "detail": "two \"Host\" headers",
                "code": "bad-request",
                "safe_to_retry": true,
                "documentation": "/.well-known/onceway/problems#bad-request",
                "error": {
                    "type": "invalid_request_error",
                    "code": "bad-request",
                    "message": "two \"Host\" headers",
                },
            })
        );
    }
}

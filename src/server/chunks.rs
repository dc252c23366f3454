//! Chunked bodies, judged before hyper sees them (RFC 9112 section 7.1), without their trailers.
//!
//! Sizes are 1 to 8 hex digits and nothing else. Readers differ about extensions, white space, bare
//! line feeds and longer sizes, so these are refused. [`super::guard`] feeds this file.

use http::{HeaderName, HeaderValue};

/// Most hex digits of a chunk's size.
const SIZE_DIGITS: usize = 8;
const TRAILERS_LIMIT: usize = 8 * 1024;

/// Position in a chunked body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// In the line with a chunk's size.
    Size,
    /// In a chunk's data, with this many bytes to come.
    Data(u64),
    /// At the line end after a chunk's data.
    DataEnd,
    /// In the trailers or the last line end, with this many bytes of them read.
    Trailers(usize),
}

/// Step for the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Pass(usize),
    /// Leave this many out.
    Drop(usize),
    /// Pass this many on. They end the body.
    Last(usize),
    More,
}

impl Chunks {
    /// Judges the next bytes. The error is the flaw: malformed, or open to two readings.
    pub fn next(&mut self, raw: &[u8]) -> Result<Step, &'static str> {
        match *self {
            Chunks::Size => self.size(raw),
            Chunks::Data(left) => {
                let here = left.min(raw.len() as u64);
                *self = if here == left { Chunks::DataEnd } else { Chunks::Data(left - here) };
                // Not more than the length of a slice.
                Ok(if here == 0 {
                    Step::More
                } else {
                    Step::Pass(usize::try_from(here).unwrap_or(raw.len()))
                })
            }
            Chunks::DataEnd => match raw {
                [b'\r', b'\n', ..] => {
                    *self = Chunks::Size;
                    Ok(Step::Pass(2))
                }
                [] | [b'\r'] => Ok(Step::More),
                [_, ..] => Err("a chunk does not end where its size says"),
            },
            Chunks::Trailers(used) => self.trailer(raw, used),
        }
    }

    fn size(&mut self, raw: &[u8]) -> Result<Step, &'static str> {
        let digits = raw.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > SIZE_DIGITS {
            return Err("a chunk's size is too long");
        }
        match &raw[digits..] {
            [] | [b'\r'] if digits > 0 || raw.is_empty() => Ok(Step::More),
            [b'\r', b'\n', ..] if digits > 0 => {
                let size =
                    str::from_utf8(&raw[..digits]).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
                *self = match size.ok_or("a chunk's size is no number")? {
                    0 => Chunks::Trailers(0),
                    size => Chunks::Data(size),
                };
                Ok(Step::Pass(digits + 2))
            }
            [b';', ..] => Err("chunk extensions are not supported"),
            [..] => Err("a chunk's size must be hex digits and CR LF"),
        }
    }

    fn trailer(&mut self, raw: &[u8], used: usize) -> Result<Step, &'static str> {
        if raw.starts_with(b"\r\n") {
            return Ok(Step::Last(2));
        }
        let line = raw.iter().position(|byte| *byte == b'\n').map(|end| &raw[..=end]);
        let read = line.map_or(raw.len(), <[u8]>::len);
        if used + read > TRAILERS_LIMIT {
            return Err("the trailers are too large");
        }
        let Some(line) = line else { return Ok(Step::More) };
        let whole = line.strip_suffix(b"\r\n").ok_or("a trailer ends with LF alone")?;
        let colon = whole.iter().position(|byte| *byte == b':').ok_or("a trailer has no colon")?;
        let (name, value) = whole.split_at(colon);
        let good =
            HeaderName::from_bytes(name).is_ok() && HeaderValue::from_bytes(value[1..].trim_ascii()).is_ok();
        if !good {
            return Err("a trailer is malformed");
        }
        *self = Chunks::Trailers(used + read);
        Ok(Step::Drop(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `raw` in pieces. Returns the bytes passed on, and the bytes after the body.
    fn run(raw: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
        let (mut chunks, mut held, mut passed) = (Chunks::Size, Vec::new(), Vec::new());
        let mut rest = raw;
        loop {
            match chunks.next(&held)? {
                Step::Pass(count) => passed.extend(held.drain(..count)),
                Step::Drop(count) => drop(held.drain(..count)),
                Step::Last(count) => {
                    passed.extend(held.drain(..count));
                    held.extend_from_slice(rest);
                    return Ok((passed, held));
                }
                Step::More => {
                    if rest.is_empty() {
                        return Err("unfinished");
                    }
                    let (next, later) = rest.split_at(piece.min(rest.len()));
                    held.extend_from_slice(next);
                    rest = later;
                }
            }
        }
    }

    #[test]
    fn chunks_pass_and_trailers_are_left_out_however_they_are_cut() {
        let raw = b"1\r\na\r\n0B\r\nhello\r\nworl\r\n000\r\nIdempotency-Key: forged\r\nx:\r\n\r\nGET /next";
        for piece in 1..=raw.len() {
            let (passed, rest) = run(raw, piece).unwrap();
            assert_eq!(passed, b"1\r\na\r\n0B\r\nhello\r\nworl\r\n000\r\n\r\n", "{piece}");
            assert_eq!(rest, b"GET /next", "{piece}");
        }
    }

    #[test]
    fn sizes_and_ends_in_doubt_are_refused() {
        let long = format!("0\r\nx: {}\r\n\r\n", "a".repeat(TRAILERS_LIMIT));
        let many = format!("0\r\n{}\r\n", "x: a\r\n".repeat(TRAILERS_LIMIT / 6 + 1));
        for raw in [
            "1\na\r\n0\r\n\r\n",
            "1;ext=1\r\na\r\n0\r\n\r\n",
            "1;ext\na\r\n0\r\n\r\n",
            "1 \r\na\r\n0\r\n\r\n",
            " 1\r\na\r\n0\r\n\r\n",
            "0x1\r\na\r\n0\r\n\r\n",
            "+1\r\na\r\n0\r\n\r\n",
            "-1\r\na\r\n0\r\n\r\n",
            "\r\na\r\n0\r\n\r\n",
            "g\r\na\r\n0\r\n\r\n",
            "1\r\r\na\r\n0\r\n\r\n",
            "000000001\r\na\r\n0\r\n\r\n",
            "ffffffffffffffff1\r\na\r\n0\r\n\r\n",
            "1\r\nab\r\n0\r\n\r\n",
            "1\r\na\n0\r\n\r\n",
            "1\r\na\r0\r\n\r\n",
            "0\r\nx: a\n\r\n",
            "0\r\nx : a\r\n\r\n",
            "0\r\n folded\r\n\r\n",
            "0\r\nnothing\r\n\r\n",
            "0\r\nx: \0\r\n\r\n",
            "0\r\n\n",
            &long,
            &many,
        ] {
            for piece in [1, 3, raw.len()] {
                let refused = run(raw.as_bytes(), piece).expect_err(raw);
                assert_ne!(refused, "unfinished", "{raw:?}");
            }
        }
    }
}

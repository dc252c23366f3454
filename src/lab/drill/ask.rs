//! A client's request: what it was told, and the time. [`onceway_client`] keeps the connections.

use anyhow::Result;
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use xxhash_rust::xxh3::xxh3_64;

use onceway_client::{Answer, NotConnected};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    pub status: u16,
    /// A problem's code; empty for anything else.
    pub code: String,
    /// `Onceway-Region`: the region that ran or refused the request.
    pub by: String,
    pub replayed: bool,
    pub retry_after: String,
    /// A digest of the body.
    pub body: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Answer(Answered),
    /// The address refuses connections.
    Nobody,
    /// The connection broke before the whole answer.
    Broke,
    /// No answer within the client's time.
    Late,
}

impl Received {
    /// The news that an answer, or its lack, is to a client.
    pub fn of(answer: Result<Answer>) -> Received {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.is::<NotConnected>() => return Received::Nobody,
            Err(error) if error.is::<Elapsed>() => return Received::Late,
            Err(_broke_off) => return Received::Broke,
        };
        let code = match answer.header("content-type") {
            "application/problem+json" => {
                answer.json()["code"].as_str().unwrap_or("a problem without a code").to_owned()
            }
            _ => String::new(),
        };
        Received::Answer(Answered {
            status: answer.status.as_u16(),
            code,
            by: answer.header("onceway-region").to_owned(),
            replayed: answer.header("idempotent-replayed") == "true",
            retry_after: answer.header("retry-after").to_owned(),
            body: xxh3_64(&answer.body),
        })
    }

    pub fn word(&self) -> String {
        match self {
            Received::Answer(answer) if answer.code.is_empty() => {
                format!("{}{}", answer.status, if answer.replayed { " replayed" } else { "" })
            }
            Received::Answer(answer) => format!("{} {}", answer.status, answer.code),
            Received::Nobody => "no connection".to_owned(),
            Received::Broke => "broke off".to_owned(),
            Received::Late => "no answer".to_owned(),
        }
    }

    pub fn answer(&self) -> Option<&Answered> {
        match self {
            Received::Answer(answer) => Some(answer),
            Received::Nobody | Received::Broke | Received::Late => None,
        }
    }

    /// The answer, if it is the upstream's success.
    pub fn success(&self) -> Option<&Answered> {
        self.answer().filter(|answer| (200..300).contains(&answer.status))
    }

    pub fn is(&self, status: u16, code: &str) -> bool {
        self.answer().is_some_and(|answer| answer.status == status && answer.code == code)
    }
}

#[derive(Clone, Debug)]
pub struct Exchange {
    pub via: usize,
    /// Moment before the request was sent.
    pub sent: Instant,
    pub done: Instant,
    pub received: Received,
}

//! Checks a peer's message against the table of `protocol::speakers` before it is handled.
//!
//! A refusal changes nothing, is counted, and is logged once a minute per peer and kind of message.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::ports::peers::PeerMessage;
use crate::protocol::region::RegionName;
use crate::protocol::speakers::{self, Kind, Sender};
use crate::protocol::time::Moment;

/// Pause between two log lines about one peer and one kind of message.
const TELL_EVERY: Duration = Duration::from_secs(60);
const MOST_TOLD: usize = 1_000;

#[derive(Debug, Default)]
pub struct Hearing {
    logged: Mutex<BTreeMap<(RegionName, Kind), Moment>>,
}

impl Hearing {
    /// Checks that `from`, which has the role `sender` here, may say this at `now`. An error is the
    /// reason, in one line for the sender; it is logged here.
    pub fn hears(
        &self,
        from: &RegionName,
        sender: Sender,
        said: &PeerMessage<'_>,
        now: Moment,
    ) -> Result<(), String> {
        let kind = said.kind;
        speakers::may(from, sender, kind, said.of).map_err(|why| {
            let why = why.to_string();
            self.tell(from, sender, kind, &why, now);
            why
        })
    }

    /// Logs a refusal, if none of this peer and kind was logged lately.
    pub fn tell(&self, from: &RegionName, sender: Sender, kind: Kind, why: &str, now: Moment) {
        let news = self.is_news(from, kind, now);
        let (sender, kind) = (sender.word(), kind.name());
        if news {
            tracing::warn!(%from, sender, kind, why, "a peer may not say this: nothing was done; told once a minute");
        } else {
            tracing::debug!(%from, sender, kind, why, "a peer may not say this: nothing was done");
        }
    }

    fn is_news(&self, from: &RegionName, kind: Kind, now: Moment) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (from.clone(), kind);
        if logged.get(&key).is_some_and(|at| now.since(*at) < TELL_EVERY) {
            return false;
        }
        if logged.len() >= MOST_TOLD {
            logged.retain(|_, at| now.since(*at) < TELL_EVERY);
        }
        logged.len() < MOST_TOLD && logged.insert(key, now).is_none_or(|at| now.since(at) >= TELL_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_a_minute_per_peer_and_kind() {
        let (hearing, second) = (Hearing::default(), |at: u64| Moment::from_nanos(at * 1_000_000_000));
        let name = |text: &str| RegionName::parse(text).unwrap();
        let news = |peer: &str, kind, at| hearing.is_news(&name(peer), kind, second(at));
        assert!(news("m", Kind::Rows, 1));
        assert!(!news("m", Kind::Rows, 60));
        assert!(news("m", Kind::Adopt, 60) && news("n", Kind::Rows, 60));
        assert!(news("m", Kind::Rows, 61));
        for number in 0..2 * MOST_TOLD {
            news(&format!("m{number}"), Kind::Rows, 62);
        }
        assert!(hearing.logged.lock().unwrap().len() <= MOST_TOLD);
        assert!(news("last", Kind::Rows, 200), "there is room again");
    }
}

//! Compares the answers to clients with the effects at upstreams (14, and 16 as clients see it).
//!
//! The log has the replies, the ledger the effects. It must not judge what gateways did.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::StatusCode;
use onceway::protocol::key::KeyId;

use super::log::Asked;
use crate::checker::Invariant;
use crate::deployment::Reply;
use crate::upstream::Happening;
use crate::words;

/// The invariant that only clients can see, by its number and name (docs/protocol.md#invariants).
/// The checker has all others.
pub(crate) const SAME_ANSWER: &str = "14 same-answer";

/// True for an upstream's answer.
pub fn is_answer(reply: &Reply) -> bool {
    matches!(reply, Reply::Told { status, .. } if status.is_success() && *status != StatusCode::ACCEPTED)
}

/// The broken invariants, with texts.
pub fn wrong(asked: &[Asked], ledger: &BTreeMap<KeyId, Vec<Happening>>) -> Vec<(String, String)> {
    let mut told: BTreeMap<&KeyId, BTreeSet<&Bytes>> = BTreeMap::new();
    let mut of_another: BTreeSet<&KeyId> = BTreeSet::new();
    for Asked { id, reply, body: request, .. } in asked.iter().filter(|asked| is_answer(&asked.reply)) {
        let Reply::Told { body, .. } = reply else { continue };
        told.entry(id).or_default().insert(body);
        let effects = ledger.get(id).map(Vec::as_slice).unwrap_or_default();
        let mut said = effects.iter().filter(|effect| effect.body == *body).peekable();
        if said.peek().is_some() && said.all(|effect| effect.asked != *request) {
            of_another.insert(id);
        }
    }
    let mut wrong = Vec::new();
    for (id, told) in told {
        let (key, effects) = (words::key(id), ledger.get(id).map(Vec::as_slice).unwrap_or_default());
        if told.iter().any(|body| effects.iter().all(|effect| effect.body != **body)) {
            wrong.push((SAME_ANSWER.to_owned(), format!("{key} was answered with what no upstream said")));
        }
        if told.len() > effects.len().max(1) {
            let text = format!("{key} has {} answers of {} effects", told.len(), effects.len());
            wrong.push((SAME_ANSWER.to_owned(), text));
        }
    }
    for id in of_another {
        let text = format!("{} was answered with what came of another request", words::key(id));
        wrong.push((Invariant::AsksTheSame.to_string(), text));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onceway::protocol::key::Key;
    use onceway::protocol::record::{RequestId, Token};
    use onceway::protocol::region::RegionName;
    use tokio::time::Instant;

    use super::*;
    use crate::scenario::workload::tenant;

    /// The breaches of these replies under one key, if upstreams performed those effects.
    fn broken(
        told: &[(&'static str, &'static str)],
        performed: &[(&'static str, &'static str)],
    ) -> Vec<String> {
        let id = KeyId::new(tenant(0), Key::parse("k").unwrap());
        let at = RegionName::parse("a").unwrap();
        let asked = |(body, answer): &(&'static str, &'static str)| {
            let reply = Reply::Told {
                status: StatusCode::CREATED,
                code: String::new(),
                body: Bytes::from(*answer),
                replayed: false,
                by: String::new(),
                retry_after: None,
            };
            let now = Instant::now();
            Asked { begun: now, ended: now, id: id.clone(), body, at: at.clone(), reply }
        };
        let happened = |(request, answer): &(&'static str, &'static str)| Happening {
            at: Duration::ZERO,
            region: at.clone(),
            token: Token { epoch: 1, attempt: 1 },
            request_id: RequestId(1),
            status: 201,
            body: Bytes::from(*answer),
            asked: Bytes::from(*request),
            queued: false,
            over_by: None,
        };
        let ledger = [(id.clone(), performed.iter().map(happened).collect())].into();
        let all: Vec<Asked> = told.iter().map(asked).collect();
        wrong(&all, &ledger).into_iter().map(|(invariant, _)| invariant).collect()
    }

    #[test]
    fn who_asks_for_something_else_must_not_have_the_answer() {
        let (one, other) = ("{}", "{\"other\":1}");
        assert_eq!(broken(&[(one, "x"), (one, "x")], &[(one, "x")]), [""; 0]);
        assert_eq!(broken(&[(one, "x"), (other, "x")], &[(one, "x")]), ["16 asks-the-same"]);
        let both = [(one, "x"), (other, "y")];
        assert_eq!(broken(&both, &both), [""; 0], "two that knew nothing of one another");
    }

    #[test]
    fn an_answer_is_an_upstreams_and_there_are_no_more_than_effects() {
        assert_eq!(broken(&[("{}", "z")], &[("{}", "x")]), [SAME_ANSWER]);
        assert_eq!(broken(&[("{}", "z")], &[]), [SAME_ANSWER]);
        assert_eq!(broken(&[("{}", "x"), ("{}", "y")], &[("{}", "x"), ("{}", "y")]), [""; 0]);
        assert_eq!(broken(&[("{}", "x"), ("{}", "y")], &[("{}", "x")]), [SAME_ANSWER, SAME_ANSWER]);
    }
}

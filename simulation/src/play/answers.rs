//! Compares the answers to clients with the effects at upstreams (`same-answer`, and
//! `asks-the-same` as clients see it).
//!
//! The log has the replies, the ledger the effects.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use onceway::protocol::key::KeyId;

use super::log::Asked;
use crate::checker::Invariant;
use crate::deployment::Reply;
use crate::upstream::Ledger;
use crate::words;

/// The invariant that only clients can see, by its name and rule. The checker has all others.
pub const SAME_ANSWER: &str = "same-answer (rule 10)";

/// The broken invariants, with texts.
pub fn wrong(asked: &[Asked], ledger: &Ledger) -> Vec<(String, String)> {
    let mut answer: BTreeMap<&KeyId, BTreeSet<&Bytes>> = BTreeMap::new();
    let mut of_another: BTreeSet<&KeyId> = BTreeSet::new();
    for Asked { id, reply, body: request, .. } in asked.iter().filter(|asked| asked.reply.is_answer()) {
        let Reply::Answered { body, .. } = reply else { continue };
        answer.entry(id).or_default().insert(body);
        let effects = ledger.get(id).map(Vec::as_slice).unwrap_or_default();
        let mut said = effects.iter().filter(|effect| effect.body == *body).peekable();
        if said.peek().is_some() && said.all(|effect| effect.asked != *request) {
            of_another.insert(id);
        }
    }
    let mut wrong = Vec::new();
    for (id, answer) in answer {
        let (key, effects) = (words::key(id), ledger.get(id).map(Vec::as_slice).unwrap_or_default());
        if answer.iter().any(|body| effects.iter().all(|effect| effect.body != **body)) {
            wrong.push((SAME_ANSWER.to_owned(), format!("{key} was answered with what no upstream said")));
        }
        if answer.len() > effects.len().max(1) {
            let text = format!("{key} has {} answers of {} effects", answer.len(), effects.len());
            wrong.push((SAME_ANSWER.to_owned(), text));
        }
    }
    for id in of_another {
        let text = format!("{} was answered with what came of another request", words::key(id));
        wrong.push((Invariant::AsksTheSame.to_string(), text));
    }
    wrong
}

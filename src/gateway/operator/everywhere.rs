//! An operator's question to all other regions at once.
//!
//! A region that gives no answer is named with the reason: a list without it must not look whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::StoreError;
use crate::ports::{Peers, Ports};
use crate::protocol::region::RegionName;

const WITHIN: Duration = Duration::from_secs(3);

/// The answers of the regions, and the reasons of those that gave none.
pub struct Answers<T> {
    pub given: Vec<(RegionName, T)>,
    pub silent: BTreeMap<String, String>,
}

impl<P: Ports> Gateway<P> {
    /// Asks all regions of the view, this one by `own`. An error: none answered.
    pub(in crate::gateway) async fn ask_all<T: DeserializeOwned>(
        self: &Arc<Self>,
        question: &Question,
        own: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Answers<T>, StoreError> {
        let (own, mut answers) = tokio::join!(own, self.ask_others(question));
        match own {
            Ok(own) => answers.given.push((self.settings.me.clone(), own)),
            Err(error) if answers.given.is_empty() => return Err(error),
            Err(error) => drop(answers.silent.insert(self.settings.me.to_string(), error.to_string())),
        }
        Ok(answers)
    }

    /// Asks each other region of the view. A region that is known to be silent is not waited for.
    pub(in crate::gateway) async fn ask_others<T: DeserializeOwned>(
        self: &Arc<Self>,
        question: &Question,
    ) -> Answers<T> {
        let view = self.view();
        let others = view.members().keys().filter(|name| **name != self.settings.me).cloned();
        let (dead, alive): (Vec<_>, Vec<_>) = others.partition(|name| self.is_silent(name));
        let asked: Vec<_> = alive
            .into_iter()
            .map(|name| {
                let (ports, question, to) = (self.ports.clone(), question.clone(), name.clone());
                (name, tokio::spawn(async move { ports.peers().ask(&to, question, WITHIN).await }))
            })
            .collect();
        let mut given = Vec::new();
        let dead = dead.into_iter().map(|name| (name.to_string(), "it does not answer".to_owned()));
        let mut silent: BTreeMap<String, String> = dead.collect();
        for (name, asked) in asked {
            let answer = match asked.await {
                Ok(Ok(PeerReply::Refused(why))) => Err(why),
                Ok(Ok(reply)) => match (question, &reply) {
                    (Question::Key { .. }, PeerReply::Key(text))
                    | (Question::Doubts { .. }, PeerReply::Doubts(text))
                    | (Question::Jobs { .. }, PeerReply::Jobs(text)) => {
                        serde_json::from_str(text).map_err(|_| "its answer is not readable here".to_owned())
                    }
                    _ => Err(format!("it answered {reply:?}")),
                },
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("the question broke off".to_owned()),
            };
            match answer {
                Ok(answer) => given.push((name, answer)),
                Err(why) => drop(silent.insert(name.to_string(), why)),
            }
        }
        Answers { given, silent }
    }
}

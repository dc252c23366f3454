//! An operator's question to all other regions at once.
//!
//! A region that gives no answer is named with the reason: a list without it must not look whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::{Peers, Ports};
use crate::protocol::region::RegionName;

/// Time limit for one region.
const WITHIN: Duration = Duration::from_secs(3);

/// The answers of the regions, and the reasons of those that gave none.
pub(in crate::gateway) struct Answers<T> {
    pub(in crate::gateway) given: Vec<(RegionName, T)>,
    pub(in crate::gateway) silent: BTreeMap<String, String>,
}

impl<P: Ports> Gateway<P> {
    /// Asks each other region of the view. `read` takes the text out of the answer that
    /// fits. A region that is known to be silent is not waited for.
    pub(in crate::gateway) async fn ask_others<T: serde::de::DeserializeOwned>(
        self: &Arc<Self>,
        question: &Question,
        read: impl Fn(&PeerReply) -> Option<String>,
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
                Ok(Ok(reply)) => match read(&reply) {
                    Some(text) => {
                        serde_json::from_str(&text).map_err(|_| "its answer is not readable here".to_owned())
                    }
                    None => Err(format!("it answered {reply:?}")),
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

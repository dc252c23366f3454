//! A store on a new timeline takes in rows of its own that its peers have and it may lack.
//!
//! A promoted standby may lack the last moment, also where it has the newest heartbeat that was
//! seen. Its peers have what replication or escrow brought them (docs/protocol.md#rule-8). Must not
//! approve anything.

use std::sync::Arc;
use std::time::Duration;

use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::Written;
use crate::ports::{Imports, Peers, Ports};
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::region::RegionName;

/// Time limit for one page.
const PAGE_WITHIN: Duration = Duration::from_secs(5);
/// Rows in one page, at most.
const PAGE: u32 = 500;
/// Pages of one peer, at most: whoever has more to say must not be listened to for ever.
const MOST_PAGES: usize = 100_000;

/// Asks each of these peers, and takes in what they have. What was asked and taken before does no
/// harm. An error says who did not answer.
pub(in crate::gateway) async fn regain<'a, P: Ports>(
    gateway: &Arc<Gateway<P>>,
    peers: impl Iterator<Item = &'a RegionName>,
) -> Result<(), String> {
    if is_disabled(Check::LatestAsked) {
        return Ok(());
    }
    for peer in peers {
        let rows = from_peer(gateway, peer).await.map_err(|why| {
            format!("the store is restored or promoted: {peer} must say what this store may lack: {why}")
        })?;
        tracing::info!(%peer, rows, "asked what this restored or promoted store may lack");
    }
    Ok(())
}

/// Takes in the rows of one peer. Returns their number.
async fn from_peer<P: Ports>(gateway: &Arc<Gateway<P>>, peer: &RegionName) -> Result<usize, String> {
    let (mut from, mut all) = (0, 0);
    for _ in 0..MOST_PAGES {
        let question = Question::Latest { origin: gateway.origin.clone(), from, most: PAGE };
        let (rows, next) = match gateway.ports.peers().ask(peer, question, PAGE_WITHIN).await {
            Ok(PeerReply::Latest { rows, next }) => (rows, next),
            Ok(PeerReply::Refused(why)) => return Err(why),
            Ok(other) => return Err(format!("it answered {other:?}")),
            Err(error) => return Err(error.to_string()),
        };
        all += rows.len();
        match gateway.ports.store().restore(&rows).await.map_err(|error| error.to_string())? {
            Written::Done => {}
            // Another process of this region approved the boot, after it had asked.
            Written::Lost | Written::GateMoved => return Ok(all),
        }
        match next {
            None => return Ok(all),
            Some(next) if next > from => from = next,
            Some(_) => return Err("its pages do not go on".to_owned()),
        }
    }
    Err("its pages do not end".to_owned())
}

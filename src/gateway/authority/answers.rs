//! Answers to other regions' questions, except forwards and pings.
//!
//! The channel is authenticated. An answer that must be durable is not taken from memory.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::register::{learn, propose};
use super::{gate_loop, moves};
use crate::gateway::instance::Gateway;
use crate::gateway::upkeep::applied::applied;
use crate::ports::authority::{CopiedRow, Latest};
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::StoreError;
use crate::ports::{Acceptors, Clock, Imports, Ports, Replica, Upkeep};
use crate::protocol::authority::GateState;
use crate::protocol::bounds::within;
use crate::protocol::key::KeyId;
use crate::protocol::opening;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{AnswerBody, State};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::{Message, Reply};
use crate::protocol::view::AcceptorId;

const MOST_ROWS: u32 = 1_000;
/// Rows per read: each row may hold a large answer.
const READ_ROWS: u32 = 50;
/// Bytes of answers in one page, approximately at most: the size of a peer's reply is bounded.
const PAGE_BYTES: usize = 4 << 20;
/// Time after which a page of rows that a store may lack is answered, also if none was found.
const LATEST_WITHIN: Duration = Duration::from_secs(2);

impl<P: Ports> Gateway<P> {
    /// Answers a peer's question.
    pub async fn answer_question(self: &Arc<Self>, from: RegionName, question: Question) -> PeerReply {
        if let Some(why) = self.not_understood(&question) {
            return PeerReply::Refused(why);
        }
        match question {
            Question::Acceptor { to, message } => {
                to_reply(answer_as_acceptor(self, &from, to, &message).await, PeerReply::Acceptor)
            }
            Question::Views { after } => {
                let known = self.snapshot();
                let newer = known.views.range((Bound::Excluded(after), Bound::Unbounded));
                PeerReply::Views(newer.map(|(_, view)| view.clone()).collect())
            }
            Question::Adopt { view } => {
                learn::caught_up(self, &from, &view).await;
                learn::adopt(self).await;
                PeerReply::Adopted(self.gate_state().map_or(0, |(_, state)| state.view.epoch()))
            }
            Question::Release { target } => to_reply(moves::release(self, target).await, PeerReply::Released),
            Question::Frontier { origin, at } => {
                to_reply(self.frontier_of(&origin, at).await, PeerReply::Frontier)
            }
            Question::Rows { origin, after, most } => {
                to_reply(self.rows_of(&origin, after, most.min(MOST_ROWS)).await, PeerReply::Rows)
            }
            Question::Latest { origin, from, most } => {
                to_reply(self.latest_of(&origin, from, most.min(READ_ROWS)).await, |reply| reply)
            }
            Question::Lodge(lodging) => self.lodged(&from, *lodging).await,
            Question::LodgeAnswer { attempt, answer } => self.answer_lodged(&from, &attempt, &answer).await,
            Question::Void(attempt) => self.voided(&from, &attempt).await,
            Question::AcceptRisk { region, at, actor, reason } => {
                let done = self.accept_risk(&region, at, &actor, &reason).await;
                let warn = |why: &String| tracing::warn!(%from, why, "an operator's act was refused");
                to_reply(done.inspect_err(warn), |()| PeerReply::Done)
            }
            Question::Key { id } => shown(self.key_status(&id).await, PeerReply::Key),
            // The admin API knows its operators, and takes the question before this one does.
            Question::Act { .. } => PeerReply::Refused("this process knows no operators".to_owned()),
            Question::Doubts { after, most } => {
                shown(self.doubts(after.as_ref(), most.clamp(1, MOST_ROWS)).await, PeerReply::Doubts)
            }
            Question::Jobs { state } => shown(self.jobs(state).await, PeerReply::Jobs),
        }
    }

    /// Reason why a question cannot be answered: a protocol version that is not spoken here. It
    /// brings a view of one, or all regions go by one.
    fn not_understood(&self, question: &Question) -> Option<String> {
        let speaks = self.settings.speaks;
        // A view that is said to be chosen is checked first: if it is chosen, this process is
        // outgrown.
        let brought = question.view().filter(|_| !matches!(question, Question::Adopt { .. }));
        self.snapshot().outgrown().or_else(|| {
            let version = brought.map(|view| view.protocol()).filter(|version| !speaks.has(*version))?;
            Some(format!("the view goes by protocol version {version}, this process speaks {speaks}"))
        })
    }

    /// This region's copy of another store, and an own heartbeat after it. That puts the rows on
    /// disk: a crash forgets applied rows that are not flushed. For a lost store, answers only once
    /// all its escrow rows here are records (docs/protocol.md#rule-39).
    pub(super) async fn frontier_of(
        self: &Arc<Self>,
        origin: &Origin,
        at: u64,
    ) -> Result<opening::Frontier, String> {
        let Some((_, state)) = self.gate_state() else { return Err("the store is not open".to_owned()) };
        if state.view.epoch() < at {
            return Err(format!("this region has not adopted the view of epoch {at}"));
        }
        let is_lost = state.view.losses().any(|(lost, _)| lost == *origin);
        if is_lost && !is_disabled(Check::ToldOfRecords) {
            gate_loop::convert(self, origin).await?;
        }
        let applied = applied(self.store()).await.map_err(|error| error.to_string())?;
        let beat = self.store().beat(None).await.map_err(|error| error.to_string())?;
        let seal = beat.ok_or("the store restarted and is not approved yet")?.seq;
        Ok(opening::Frontier { applied: applied.rows(origin), seal })
    }

    /// One page of an origin's rows: fewer than `most` if they are large, empty if there are none.
    async fn rows_of(
        &self,
        origin: &Origin,
        mut after: Option<KeyId>,
        most: u32,
    ) -> Result<Vec<CopiedRow>, StoreError> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < most as usize {
            let rows = self.store().rows_of(origin, after.as_ref(), READ_ROWS.min(most)).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.id.clone());
            for row in rows {
                bytes += size(&row);
                if page.len() == most as usize || (bytes > PAGE_BYTES && !page.is_empty()) {
                    return Ok(page);
                }
                page.push(row);
            }
        }
        Ok(page)
    }

    /// One page of rows that an origin's store may lack; empty if none was found in time.
    async fn latest_of(&self, origin: &Origin, mut from: u64, most: u32) -> Result<PeerReply, StoreError> {
        let clock = self.ports.clock();
        let until = clock.now() + LATEST_WITHIN;
        loop {
            let Latest { mut rows, mut next } = self.store().latest_of(origin, from, most).await?;
            if let Some(place) = next.filter(|_| rows.is_empty() && clock.now() < until) {
                from = place;
                continue;
            }
            let mut bytes = 0;
            let too_many = |(_, row): &(u64, CopiedRow)| {
                bytes += size(row);
                bytes > PAGE_BYTES
            };
            if let Some(cut @ 1..) = rows.iter().position(too_many) {
                next = Some(rows[cut].0);
                rows.truncate(cut);
            }
            return Ok(PeerReply::Latest { rows: rows.into_iter().map(|(_, row)| row).collect(), next });
        }
    }

    /// Accepts that rows of a lost region may be missing: nothing waits for them here any more.
    pub(in crate::gateway) async fn accept_risk(
        self: &Arc<Self>,
        region: &RegionName,
        at: u64,
        actor: &str,
        reason: &str,
    ) -> Result<(), String> {
        moves::change_gate(self, |state| {
            if !state.view.losses().any(|(lost, then)| (&lost.region, then) == (region, at)) {
                return Err(format!("{region} was not lost in epoch {at} as this region knows it"));
            }
            let mut waived = state.waived.clone();
            let new = waived.insert((region.clone(), at));
            Ok(new.then(|| GateState { waived, ..state.clone() }))
        })
        .await?;
        let text = format!("{actor}: the loss of {region} in epoch {at}: {reason}");
        tracing::warn!(text, "an operator accepted the risk of a lost region");
        if let Err(error) = self.store().note("risk-accepted", &text).await {
            tracing::error!(text, %error, "an accepted risk could not be journalled");
        }
        self.authority.wakes.gate.notify_one();
        Ok(())
    }
}

/// Answers a peer's message for the acceptor `to`. If its numbers are far ahead, a majority is read
/// first; a message that is still out of bounds is refused.
async fn answer_as_acceptor<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    from: &RegionName,
    to: Option<AcceptorId>,
    message: &Message,
) -> Result<Reply, String> {
    let read = || gateway.store().acceptor();
    let (_, acceptor) = read().await.map_err(|error| error.to_string())?;
    if within(&acceptor, message, &gateway.bounds()).is_err() {
        learn::catch_up(gateway).await;
        let (_, acceptor) = read().await.map_err(|error| error.to_string())?;
        if let Err(why) = within(&acceptor, message, &gateway.bounds()) {
            let question = Question::Acceptor { to, message: message.clone() };
            gateway.out_of_bounds(from, question.kind(), &why.to_string());
            return Err(why.to_string());
        }
    }
    if let Message::Found { .. } = message
        && acceptor.accepted.is_none()
        && gateway.view().epoch() > 0
    {
        return Err("the register is founded: an acceptor that was made anew is no new deployment".to_owned());
    }
    propose::answer(gateway, to, message).await
}

fn to_reply<T>(found: Result<T, impl ToString>, wrap: impl FnOnce(T) -> PeerReply) -> PeerReply {
    found.map_or_else(|why| PeerReply::Refused(why.to_string()), wrap)
}

fn shown(page: Result<impl Serialize, StoreError>, wrap: fn(String) -> PeerReply) -> PeerReply {
    to_reply(page, |page| to_reply(serde_json::to_string(&page), wrap))
}

/// Size of a row on its way, in bytes. Counts only the part that can be large.
fn size(copied: &CopiedRow) -> usize {
    let State::Settled { answer, .. } = &copied.row.state else { return 0 };
    match &answer.body {
        AnswerBody::Kept(body) => body.len(),
        AnswerBody::NotKept => 0,
    }
}

//! The real gateway as a region of the simulated network.
//!
//! `onceway::gateway` is the very code that serves in production. It must add nothing: a forward, a
//! ping and a question reach the gateway as the peer listener would hand them in.

use std::sync::Arc;

use onceway::gateway::instance::Gateway;
use onceway::ports::peers::{Forward, ForwardReply, PeerMessage, PeerReply, Pong, Question};
use onceway::protocol::region::RegionName;

use crate::peers::{Answering, Region};
use crate::ports::SimPorts;

impl Region for Arc<Gateway<SimPorts>> {
    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        Gateway::hears(self, from, said)
    }

    fn forward(&self, from: RegionName, forward: Forward) -> Answering<'_, ForwardReply> {
        Box::pin(async move {
            match self.place_for_forward(&forward, forward.body.len()) {
                Ok(place) => self.serve_forward(from, forward, place).await,
                Err(refusal) => *refusal,
            }
        })
    }

    fn pong(&self) -> Answering<'_, Pong> {
        Box::pin(Gateway::pong(self))
    }

    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, PeerReply> {
        Box::pin(self.answer_question(from, question))
    }
}

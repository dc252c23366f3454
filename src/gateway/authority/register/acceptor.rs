//! The region's acceptor: answers messages of the register, one compare-and-set per message.
//!
//! `protocol::register` decides each answer. A reply leaves only when its promise is durable; if a
//! write may or may not have happened, no reply is sent. Must not answer from memory: other
//! gateways of the region write the same row.

use std::sync::Arc;

use crate::gateway::instance::Gateway;
use crate::ports::store::Written;
use crate::ports::{Acceptors, Clock, Ports};
use crate::protocol::register::{Acceptor, Message, Reply};
use crate::protocol::view::AcceptorId;

/// Lost compare-and-sets per message, at most. After that the sender gets an error and asks again.
const TRIES: usize = 16;

pub(in crate::gateway) async fn answer<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    to: Option<AcceptorId>,
    message: &Message,
) -> Result<Reply, String> {
    let store = gateway.ports.store();
    for _ in 0..TRIES {
        let (version, acceptor) = store.acceptor().await.map_err(|error| error.to_string())?;
        let now = observe(gateway, &acceptor);
        let (next, reply) = gateway.authority.watch().answer(&acceptor, to, message, now);
        let Some(next) = next else { return Ok(reply) };
        match store.set_acceptor(version, &next).await.map_err(|error| error.to_string())? {
            Written::Done => {
                // Observed after the write: a grant seems to begin later than it does, never
                // earlier.
                observe(gateway, &next);
                return Ok(reply);
            }
            Written::Lost => {}
            Written::GateMoved => {
                return Err(
                    "the store restarted and is not approved yet: it may have forgotten promises".into()
                );
            }
        }
    }
    Err("too many messages at a time".to_owned())
}

/// Reads the acceptor, so that its grants are watched.
pub(in crate::gateway) async fn look<P: Ports>(gateway: &Arc<Gateway<P>>) -> Option<Acceptor> {
    let (_, acceptor) = gateway.ports.store().acceptor().await.ok()?;
    observe(gateway, &acceptor);
    Some(acceptor)
}

fn observe<P: Ports>(gateway: &Gateway<P>, acceptor: &Acceptor) -> crate::protocol::time::Moment {
    let now = gateway.ports.clock().now();
    gateway.authority.watch().observe(acceptor, now);
    now
}

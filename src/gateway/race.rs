//! Waiting for one of two futures, in a fixed order.
//!
//! `tokio::select!` polls in random order, which would break the replay of a simulation from its
//! seed. Here the first future is always polled first. This file must not spawn anything.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The future that completed.
pub enum Won<A, B> {
    First(A),
    /// The second, while the first was still pending.
    Second(B),
}

/// Waits for either future; when both are ready the first wins. The loser is dropped.
pub async fn race<A: Future, B: Future>(first: A, second: B) -> Won<A::Output, B::Output> {
    let mut first = pin!(first);
    let mut second = pin!(second);
    poll_fn(move |context| {
        if let Poll::Ready(value) = first.as_mut().poll(context) {
            return Poll::Ready(Won::First(value));
        }
        second.as_mut().poll(context).map(Won::Second)
    })
    .await
}

//! The holder's side of a lease, by the numbers of a state.
//!
//! `parts` keeps the values, `steps` asks. Every change is one of `onceway::protocol::lease`'s own.
//! A lapse is noticed in its own tick, because all paths notice it before they do anything else.

use std::sync::Arc;

use onceway::protocol::lease::Lease;
use onceway::protocol::register::Reply;
use onceway::protocol::view::View;

use crate::model::parts::{BEGIN, Held, Holder, Parts, TICK, TTL};
use crate::model::pool;
use crate::model::state::{Site, ViewId};

impl Parts {
    fn holder(&self, holder: Holder) -> u32 {
        let key = pool::lease(&holder.lease, self.past(holder.now), &|view| self.named(view));
        self.holders.id(&key, || holder)
    }

    pub fn new_holder(&self) -> u32 {
        let lease = || Lease::new(TTL, self.drift());
        self.fresh.get((), || self.holder(Holder { lease: lease(), asked: BEGIN, now: BEGIN }))
    }

    /// One tick later: a lapse is noticed at once.
    pub fn tick_holder(&self, holder: u32) -> Held {
        self.ticked_holders.get(holder, || {
            self.change(holder, |holder| {
                holder.now = holder.now + TICK;
                let now = holder.now;
                holder.lease.held(now);
            })
        })
    }

    fn change(&self, holder: u32, act: impl FnOnce(&mut Holder)) -> Held {
        let mut next = (*self.holders.get(holder)).clone();
        let before = next.lease.tenure();
        act(&mut next);
        let ended = next.lease.tenure() != before;
        (self.holder(next), ended)
    }

    pub fn ask(&self, holder: u32, under: ViewId, view: &Arc<View>) -> (Held, bool) {
        self.asked.get((holder, under), || {
            let mut may = false;
            let held = self.change(holder, |holder| {
                may = holder.lease.may_ask(holder.now);
                if may {
                    holder.lease.asks(view.clone(), super::parts::boot(), holder.now);
                    holder.asked = holder.now;
                }
            });
            (held, may)
        })
    }

    pub fn heard(&self, holder: u32, from: Site, granted: bool) -> Held {
        self.grants.get((holder, from, granted.into()), || {
            let reply = if granted { Reply::Granted(0) } else { Reply::Newer };
            self.change(holder, |holder| {
                holder.lease.heard(self.name(from), &reply, holder.asked, holder.now);
            })
        })
    }

    pub fn lose_keys(&self, holder: u32) -> Held {
        self.lost.get(holder, || self.change(holder, |holder| holder.lease.lost_keys()))
    }

    pub fn lay_down(&self, holder: u32) -> Held {
        self.laid.get(holder, || self.change(holder, |holder| holder.lease.lay_down()))
    }

    /// True if a handler with the right tenure may send now.
    pub fn is_held(&self, holder: u32) -> bool {
        self.held.get(holder, || {
            let Holder { lease, now, .. } = &*self.holders.get(holder);
            let Some(held) = lease.current() else { return false };
            self.snapshot(held.view.clone(), None, lease, 0).may_send(lease.tenure(), *now)
        })
    }
}

//! One step: its effect on the parts, and the judgement of the truth.
//!
//! `acts` offers, `parts` answers with the protocol's own code, `truth` judges. It carries
//! messages, keeps durable data, and forgets a process's memory.

use onceway::protocol::register::Acceptor;

use crate::model::acts::Act;
use crate::model::parts::{PeerMessage, TTL_TICKS, Turn, register_id, short_id};
use crate::model::state::{Ballot, Broken, Given, Handler, Mail, Run, Site, State, ViewId, What};
use crate::model::wishes::Wish;
use crate::model::world::{Fault, Plan, World};

impl World {
    /// The state after `act`; none if nothing changes.
    pub fn step(&self, state: &State, act: Act) -> Option<State> {
        let mut next = state.clone();
        let done = match act {
            Act::Tick => self.tick(&mut next),
            Act::Deliver(mail) => self.deliver(&mut next, mail),
            Act::Renew(at) => self.renew(&mut next, at),
            Act::Propose(at, plan) => self.propose(&mut next, at, plan),
            Act::Adopt(at, view) => self.adopt(&mut next, at, view),
            Act::Open(at) => self.open(&mut next, at),
            Act::GiveUp(at, target) => self.give_up(&mut next, at, target),
            Act::Arrive(at, of) => {
                next.applied[usize::from(at)][usize::from(of)] = next.seq[usize::from(of)];
                Some(())
            }
            Act::Claim(at) => self.claim(&mut next, at),
            Act::Send(run) => self.send(&mut next, run),
            Act::Restart(at) => self.restart(&mut next, at),
            Act::Remake(at) => self.remake(&mut next, at),
            Act::Admit(at) => self.admit(&mut next, at),
        };
        done?;
        self.reach_own(&mut next);
        self.judge(&mut next);
        self.settle(&mut next);
        (next != *state).then_some(next)
    }

    /// Delivers the requests of a process to its own acceptor, and the replies, at once.
    fn reach_own(&self, state: &mut State) {
        let mut last = 0;
        while let Some(at) = state.mail[last..].iter().position(|mail| mail.from == mail.to) {
            let mail = state.mail[last + at];
            let mut next = state.clone();
            match self.deliver(&mut next, mail) {
                Some(()) => (*state, last) = (next, 0),
                // Not heeded now: it stays under way, and arrives as soon as it is heeded.
                None => last += at + 1,
            }
        }
    }

    /// Resets the parts of a state that can no longer matter, so that such states are equal.
    fn settle(&self, state: &mut State) {
        if state.left.rounds == 0 {
            (state.counters, state.lives) = ([0; 3], [0; 3]);
        }
        if state.left.rounds == 0 || self.changes(state) == self.bounds.changes && self.begun {
            state.given.clear();
        }
        if state.runs.len() == self.bounds.claims
            && state.runs.iter().all(|run| run.handler != Handler::Waits)
        {
            for run in &mut state.runs {
                *run = Run { at: 0, seq: 0, epoch: 0, knew: [0; 3], handler: run.handler };
            }
        }
        if state.left.renewals == 0 {
            for at in 0..self.parts.regions {
                let comes = |mail: &Mail| match mail.what {
                    What::Renew(_, last) => last && mail.from == at,
                    What::Granted => mail.to == at,
                    What::Prepare(_) | What::Accept(..) => false,
                };
                let lease = &mut state.leases[usize::from(at)];
                if !self.parts.is_held(*lease) && !state.mail.iter().any(comes) {
                    *lease = self.parts.new_holder();
                }
            }
        }
    }

    fn tick(&self, state: &mut State) -> Option<()> {
        let stands = self.bounds.slow.filter(|_| !state.ticks);
        state.ticks = stands.is_some();
        for (_, desk) in (0..).zip(&mut state.desks).filter(|(at, _)| Some(*at) != stands) {
            *desk = self.parts.tick_desk(*desk);
        }
        for at in (0..self.parts.regions).filter(|at| Some(*at) != stands) {
            let held = self.parts.tick_holder(state.leases[usize::from(at)]);
            self.holds(state, at, held);
        }
        Some(())
    }

    /// Sets the lease after a change. Handlers that claimed under an ended tenure send no more.
    fn holds(&self, state: &mut State, at: Site, (lease, ended): (u32, bool)) {
        state.leases[usize::from(at)] = lease;
        if ended && !self.has(Fault::SendsUnchecked) {
            state.refuse(at);
        }
    }

    /// Sends a message of a round, unless it will never be heeded: then its sender hears why.
    fn post(&self, state: &mut State, mail: Mail) {
        match self.outbid(&mail, state.desks[usize::from(mail.to)]) {
            None => state.post(mail),
            Some(counter) => heard_of(state, mail.from, counter),
        }
    }

    /// Sets another acceptor at a site. Senders of messages that it will never heed hear why.
    fn set_desk(&self, state: &mut State, to: Site, desk: u32) {
        state.desks[usize::from(to)] = desk;
        let mut mail = std::mem::take(&mut state.mail);
        mail.retain(|mail| {
            let outbid = self.outbid(mail, desk).filter(|_| mail.to == to);
            outbid.into_iter().for_each(|counter| heard_of(state, mail.from, counter));
            outbid.is_none()
        });
        state.mail = mail;
    }

    fn deliver(&self, state: &mut State, mail: Mail) -> Option<()> {
        if !state.take(&mail) {
            return None;
        }
        match mail.what {
            What::Prepare(ballot) => self.to_acceptor(state, mail, ballot),
            What::Accept(ballot, view) => {
                let answer = self.parts.answer(state.desks[usize::from(mail.to)], mail);
                if answer.said == PeerMessage::Accepted {
                    self.accepted(state, ballot, view, mail.id);
                }
                self.to_acceptor(state, mail, ballot)
            }
            What::Renew(_, last) => {
                let answer = self.parts.answer(state.desks[usize::from(mail.to)], mail);
                self.set_desk(state, mail.to, answer.desk);
                if last && answer.said == PeerMessage::Granted {
                    let reply = Mail { from: mail.to, to: mail.from, id: mail.id, what: What::Granted };
                    state.post(reply);
                }
                if last && answer.said == PeerMessage::Newer {
                    let held = self.parts.heard(state.leases[usize::from(mail.from)], mail.to, false);
                    self.holds(state, mail.from, held);
                }
                Some(())
            }
            What::Granted => {
                let held = self.parts.heard(state.leases[usize::from(mail.to)], mail.from, true);
                self.holds(state, mail.to, held);
                Some(())
            }
        }
    }

    /// Delivers a message of a round and its reply at once: late or lost consequences are the same.
    fn to_acceptor(&self, state: &mut State, mail: Mail, ballot: Ballot) -> Option<()> {
        let answer = self.parts.answer(state.desks[usize::from(mail.to)], mail);
        match answer.said {
            PeerMessage::Promised(..) | PeerMessage::Accepted => {}
            // The same as if it came later.
            PeerMessage::No | PeerMessage::Granted | PeerMessage::Newer => return None,
            PeerMessage::Outbid(counter) => {
                heard_of(state, mail.from, counter);
                return Some(());
            }
        }
        self.set_desk(state, mail.to, answer.desk);
        if !answer.sound {
            state.broken = Some(Broken::PromiseFell);
        }
        let by = usize::from(mail.from);
        if state.rounds[by] > 0 && self.parts.rounds.get(state.rounds[by]).ballot == ballot {
            let (round, mails, chosen) =
                self.parts.round_heard(state.rounds[by], mail.to, mail.id, answer.said);
            state.rounds[by] = if chosen > 0 { 0 } else { round };
            mails.into_iter().for_each(|mail| self.post(state, mail));
            if chosen > 0 {
                self.announce(state, chosen);
            }
        }
        let read = self.parts.read(state.desks);
        if read > 0 {
            self.announce(state, read);
        }
        Some(())
    }

    fn renew(&self, state: &mut State, at: Site) -> Option<()> {
        let here = usize::from(at);
        let gate = self.parts.gates.get(state.gates[here]);
        let view = &gate.state.view;
        if !view.serves(self.parts.name(at)) {
            let held = self.parts.lay_down(state.leases[here]);
            self.holds(state, at, held);
            state.stale(at);
            return Some(());
        }
        if state.left.renewals == 0 {
            return None;
        }
        let (held, may) = self.parts.ask(state.leases[here], gate.view, view);
        self.holds(state, at, held);
        if may {
            state.left.renewals -= 1;
            state.stale(at);
            for (name, id) in view.voters() {
                let (to, id) = (self.parts.site(name), short_id(*id));
                state.post(Mail { from: at, to, id, what: What::Renew(gate.view, true) });
            }
        }
        Some(())
    }

    fn propose(&self, state: &mut State, at: Site, plan: Plan) -> Option<()> {
        let here = usize::from(at);
        let gate = self.parts.gates.get(state.gates[here]);
        let (view, base) = (&gate.state.view, gate.view);
        let known = state.chosen.iter().position(|chosen| *chosen == base)? + 1;
        if self.begun && known.saturating_sub(self.start.chosen.len()) >= self.bounds.changes {
            return None;
        }
        let wanted = match plan {
            Plan::Finish => 0,
            Plan::Lose(of) => {
                let others =
                    (0..self.parts.regions).filter(|by| *by != of && view.serves(self.parts.name(*by)));
                let seen = others.map(|by| state.applied[usize::from(by)][usize::from(of)]);
                self.legal(base, Wish::Lose { of, frontier: seen.max().unwrap_or(0) })?
            }
            Plan::Back => {
                state.seq[here] += 1;
                self.legal(base, Wish::Seal { of: at, seal: state.seq[here] })?
            }
            Plan::Turn(of) => self.turned(state, base, of)?,
            Plan::Kill => self.legal(base, Wish::Kill)?,
            Plan::Swap(of) => {
                let id = self.parts.desks.get(state.desks[usize::from(of)]).acceptor.id;
                self.legal(base, Wish::Swap { of, id: short_id(id) })?
            }
        };
        state.left.rounds -= 1;
        state.counters[here] += 1;
        let ballot = Ballot { counter: state.counters[here], by: at, life: state.lives[here] };
        let (round, mails) = self.parts.open_round(ballot, base, wanted);
        state.rounds[here] = round;
        mails.into_iter().for_each(|mail| self.post(state, mail));
        Some(())
    }

    fn legal(&self, base: ViewId, wish: Wish) -> Option<ViewId> {
        Some(self.parts.wished(base, wish)).filter(|view| *view > 0)
    }

    /// The clean move, if its losers have reported.
    fn turned(&self, state: &State, base: ViewId, of: Site) -> Option<ViewId> {
        let target = Some(self.parts.draft(base, of)).filter(|target| *target > 0)?;
        let fits = |given: &&Given| given.target == target || self.has(Fault::ReusesReport);
        let mut reports = state.given.iter().copied().filter(|given| fits(&given));
        let as_asked = |given: Given| Given { target, ..given };
        let given = [reports.next().map(as_asked), reports.next().map(as_asked)];
        self.legal(base, Wish::Move { target, given })
    }

    fn adopt(&self, state: &mut State, at: Site, view: ViewId) -> Option<()> {
        let here = usize::from(at);
        let gate = self.parts.gates.get(state.gates[here]);
        let before = gate.view;
        let next = self.parts.turn(state.gates[here], Turn::Adopt(view));
        if next == state.gates[here] {
            return None;
        }
        state.gates[here] = next;
        state.rounds[here] = 0;
        if self.parts.loses(before, view, at) {
            let held = self.parts.lose_keys(state.leases[here]);
            self.holds(state, at, held);
        }
        self.adopted(state, view);
        Some(())
    }

    fn open(&self, state: &mut State, at: Site) -> Option<()> {
        let here = usize::from(at);
        let gate = self.parts.gates.get(state.gates[here]);
        let there = std::array::from_fn(|by| {
            let at = by < usize::from(self.parts.regions);
            at && self.parts.gates.get(state.gates[by]).state.view.epoch() >= gate.state.view.epoch()
        });
        let (mine, opens) = self.parts.opening(gate.view, at, state.applied, there);
        state.applied[here] = mine;
        if opens {
            state.gates[here] = self.parts.turn(state.gates[here], Turn::Open);
            self.opened(state, at, &gate.state.view, there);
        }
        Some(())
    }

    fn give_up(&self, state: &mut State, at: Site, target: ViewId) -> Option<()> {
        let here = usize::from(at);
        let gate = self.parts.gates.get(state.gates[here]);
        if target == 0 || !self.parts.loses(gate.view, target, at) {
            return None;
        }
        state.left.releases -= 1;
        state.seq[here] += 1;
        // The fault: a heartbeat from before all claims.
        let seal = if self.has(Fault::SealsEarly) { 0 } else { state.seq[here] };
        let mut seen = [0; 3];
        for (lost, _) in gate.state.view.losses() {
            let lost = usize::from(self.parts.site(&lost.region));
            seen[lost] = state.applied[here][lost];
        }
        state.given.push(Given { by: at, target, seal, seen });
        state.given.sort_unstable();
        state.gates[here] = self.parts.turn(state.gates[here], Turn::GiveUp { target, seal });
        Some(())
    }

    fn claim(&self, state: &mut State, at: Site) -> Option<()> {
        let here = usize::from(at);
        if self.parts.may_run(state.gates[here], state.leases[here], at) & 1 == 0 {
            return None;
        }
        state.seq[here] += 1;
        let epoch = self.parts.gates.get(state.gates[here]).state.view.epoch() as u8;
        let knew = state.applied[here];
        self.claimed(state, Run { at, seq: state.seq[here], epoch, knew, handler: Handler::Waits });
        Some(())
    }

    /// Sends, if the lease is still valid. An ended tenure has removed the handler already.
    fn send(&self, state: &mut State, run: u8) -> Option<()> {
        let at = state.runs[usize::from(run)].at;
        if !self.parts.is_held(state.leases[usize::from(at)]) && !self.has(Fault::SendsUnchecked) {
            return None;
        }
        state.runs[usize::from(run)].handler = Handler::Gone;
        self.sent(state, usize::from(run));
        Some(())
    }

    fn restart(&self, state: &mut State, at: Site) -> Option<()> {
        let here = usize::from(at);
        state.left.restarts -= 1;
        state.forget(at);
        state.counters[here] = 0;
        state.lives[here] += 1;
        state.leases[here] = self.parts.new_holder();
        let mut desk = self.parts.watch_anew(state.desks[here]);
        if self.has(Fault::StartsKnowing) {
            desk = (0..TTL_TICKS).fold(desk, |desk, _| self.parts.tick_desk(desk));
        }
        self.set_desk(state, at, desk);
        Some(())
    }

    fn remake(&self, state: &mut State, at: Site) -> Option<()> {
        state.left.remakes -= 1;
        let desk = self.parts.new_desk(Acceptor::made(register_id(at + 3)));
        self.set_desk(state, at, desk);
        Some(())
    }

    /// Lets the acceptor answer after its silence, if the newest view known there names it.
    fn admit(&self, state: &mut State, at: Site) -> Option<()> {
        let here = usize::from(at);
        let newest = match at < self.parts.regions {
            true => self.parts.gates.get(state.gates[here]).state.view.clone(),
            false => self.parts.views.get(*state.chosen.last()?),
        };
        let at_once = self.has(Fault::AdmitsAtOnce);
        let mut desk = self.parts.admit(state.desks[here], at, &newest);
        if at_once {
            let later = (0..TTL_TICKS).fold(desk, |desk, _| self.parts.tick_desk(desk));
            desk = self.parts.admit(later, at, &newest);
        }
        self.set_desk(state, at, desk);
        Some(())
    }
}

/// Notes that another process has a ballot of that counter.
fn heard_of(state: &mut State, at: Site, counter: u8) {
    let known = &mut state.counters[usize::from(at)];
    *known = (*known).max(counter);
}

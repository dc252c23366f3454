//! The possible next acts in a state.
//!
//! Nothing is urgent: an offered act may also never happen. It must not leave out one that a world
//! allows.

use std::fmt::Write;

use stateright::Path;

use crate::model::state::{Ballot, Handler, Mail, Site, State, ViewId, What};
use crate::model::world::{Plan, World};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Tick,
    Deliver(Mail),
    Renew(Site),
    Propose(Site, Plan),
    /// A region adopts a view that it heard was chosen.
    Adopt(Site, ViewId),
    /// A region checks if its gate may open, and fetches missing rows.
    Open(Site),
    /// A region gives up the keys that a draft takes, seals, and reports.
    GiveUp(Site, ViewId),
    /// All rows that the second wrote arrive at the first.
    Arrive(Site, Site),
    Claim(Site),
    Send(u8),
    Restart(Site),
    /// An acceptor's disk is replaced by an empty one.
    Remake(Site),
    /// The process beside a new acceptor checks if it may answer.
    Admit(Site),
}

impl World {
    /// All possible acts, and some that change nothing.
    pub fn offer(&self, state: &State, acts: &mut Vec<Act>) {
        self.offer_all(state, acts);
        acts.retain(|act| self.has_part(act));
    }

    fn has_part(&self, act: &Act) -> bool {
        let only = &self.bounds.only;
        match act {
            Act::Renew(at) => only.renew.contains(at),
            Act::Claim(at) => only.claim.contains(at),
            Act::Arrive(at, of) => only.arrive.contains(&(*at, *of)),
            Act::Deliver(mail) => {
                !only.cut.contains(&(mail.from, mail.to)) && !only.cut.contains(&(mail.to, mail.from))
            }
            _ => true,
        }
    }

    fn offer_all(&self, state: &State, acts: &mut Vec<Act>) {
        acts.push(Act::Tick);
        let mut last = None;
        for mail in &state.mail {
            if last.replace(mail) != Some(mail) {
                acts.push(Act::Deliver(*mail));
            }
        }
        for (run, _) in state.runs.iter().enumerate().filter(|(_, run)| run.handler == Handler::Waits) {
            acts.push(Act::Send(run as u8));
        }
        for at in 0..self.parts.regions {
            self.offer_at(state, at, acts);
        }
        for at in 0..3 {
            if state.left.remakes > 0 {
                acts.push(Act::Remake(at));
            }
            if !self.parts.desks.get(state.desks[usize::from(at)]).acceptor.admitted {
                acts.push(Act::Admit(at));
            }
        }
    }

    fn offer_at(&self, state: &State, at: Site, acts: &mut Vec<Act>) {
        let here = usize::from(at);
        let gate = self.parts.gates.get(state.gates[here]);
        let more = self.changes(state) < self.bounds.changes;
        acts.push(Act::Renew(at));
        let known = gate.state.view.epoch();
        for view in state.chosen.iter().chain(&state.mistaken) {
            if self.parts.views.get(*view).epoch() > known {
                acts.push(Act::Adopt(at, *view));
            }
        }
        if !gate.state.is_open() {
            acts.push(Act::Open(at));
        }
        for of in (0..self.parts.regions).filter(|of| *of != at) {
            if state.applied[here][usize::from(of)] < state.seq[usize::from(of)] {
                acts.push(Act::Arrive(at, of));
            }
        }
        if state.runs.len() < self.bounds.claims {
            acts.push(Act::Claim(at));
        }
        if state.left.restarts > 0 {
            acts.push(Act::Restart(at));
        }
        if state.left.releases > 0 && gate.state.pending.is_none() && more {
            for (_, plan) in &self.bounds.plans {
                if let Plan::Turn(of) = plan {
                    acts.push(Act::GiveUp(at, self.parts.draft(gate.view, *of)));
                }
            }
        }
        if state.left.rounds > 0 {
            let plans = self.bounds.plans.iter().filter(|(by, _)| *by == at);
            acts.extend(plans.map(|(_, plan)| Act::Propose(at, *plan)));
        }
    }

    /// The counter of the acceptor's promise, if it makes the acceptor ignore that message for
    /// ever: nothing below a promise is accepted.
    pub fn outbid(&self, mail: &Mail, desk: u32) -> Option<u8> {
        let promised = self.parts.desks.get(desk).promised?;
        let dead = match mail.what {
            What::Prepare(ballot) => ballot <= promised,
            What::Accept(ballot, _) => ballot < promised,
            What::Renew(..) | What::Granted => false,
        };
        dead.then_some(promised.counter)
    }
}

pub fn story(world: &World, path: Path<State, Act>) -> String {
    let mut text = String::new();
    for (number, (state, act)) in path.into_vec().into_iter().enumerate() {
        if let Some(act) = act {
            let _ = writeln!(text, "  {:>3}. {}", number + 1, world.describe(&state, act));
        }
    }
    text
}

impl World {
    fn name_of(&self, site: Site) -> &str {
        self.parts.name(site).as_str()
    }

    fn ballot(&self, ballot: Ballot) -> String {
        let Ballot { counter, by, life } = ballot;
        let again = if life > 0 { " (after a restart)" } else { "" };
        format!("ballot {counter} of {}{again}", self.name_of(by))
    }

    fn shown(&self, view: ViewId) -> String {
        let view = self.parts.views.get(view);
        let serving: Vec<&str> = view.serving().map(|name| name.as_str()).collect();
        format!("view {} (serving: {})", view.epoch(), serving.join(" "))
    }

    fn plan(&self, plan: Plan) -> String {
        match plan {
            Plan::Lose(of) => format!("{} is lost", self.name_of(of)),
            Plan::Back => "it is back".to_owned(),
            Plan::Turn(of) => format!("the arcs of {} move, on or back", self.name_of(of)),
            Plan::Kill => "what is pending is dropped".to_owned(),
            Plan::Finish => "what was begun is finished".to_owned(),
            Plan::Swap(of) => format!("the new acceptor of {} votes", self.name_of(of)),
        }
    }

    fn mail(&self, mail: Mail) -> String {
        let (from, to) = (self.name_of(mail.from), self.name_of(mail.to));
        match mail.what {
            What::Prepare(ballot) => format!("{to} promises {} to {from}", self.ballot(ballot)),
            What::Accept(ballot, view) => {
                format!("{to} accepts {} under {}", self.shown(view), self.ballot(ballot))
            }
            What::Renew(view, last) => {
                let late = if last { "" } else { ", long on its way" };
                format!("{to} is asked by {from} for a lease under {}{late}", self.shown(view))
            }
            What::Granted => format!("{to} hears that {from} granted its lease"),
        }
    }

    fn describe(&self, state: &State, act: Act) -> String {
        match act {
            Act::Tick => "half a lease's time passes".to_owned(),
            Act::Deliver(mail) => self.mail(mail),
            Act::Renew(at) => format!("{} asks for its lease", self.name_of(at)),
            Act::Propose(at, plan) => format!("{} proposes: {}", self.name_of(at), self.plan(plan)),
            Act::Adopt(at, view) => format!("{} adopts {}", self.name_of(at), self.shown(view)),
            Act::Open(at) => {
                format!("{} fetches what it lacks and looks whether it may open", self.name_of(at))
            }
            Act::GiveUp(at, view) => {
                format!("{} gives up what {} takes, and seals", self.name_of(at), self.shown(view))
            }
            Act::Arrive(at, of) => format!("what {} wrote arrives at {}", self.name_of(of), self.name_of(at)),
            Act::Claim(at) => format!("{} claims the key", self.name_of(at)),
            Act::Send(run) => {
                format!("{} sends what it claimed", self.name_of(state.runs[usize::from(run)].at))
            }
            Act::Restart(at) => format!("the process of {} dies, another starts", self.name_of(at)),
            Act::Remake(at) => format!("the acceptor of {} is made anew", self.name_of(at)),
            Act::Admit(at) => format!("the new acceptor of {} looks whether it may answer", self.name_of(at)),
        }
    }
}

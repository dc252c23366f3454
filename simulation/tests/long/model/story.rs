//! A schedule that a person can follow: one line for each step.
//!
//! `model.rs` prints it for each mutant, and for each broken invariant. It must not shorten: every
//! step counts.

use std::fmt::Write;

use stateright::Path;

use crate::model::acts::Act;
use crate::model::state::{Ballot, Mail, Site, State, ViewId, What};
use crate::model::world::{Plan, World};

/// The steps, from the start to the last state.
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

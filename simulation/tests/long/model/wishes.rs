//! The wishes of the model's processes, as values of the protocol: drafts, next views, and the
//! hindrances of a gate.
//!
//! A wish may be unwise, and the protocol judges if it is legal: it has to bear any at any time.

use std::collections::{BTreeMap, BTreeSet};

use onceway::protocol::change::{Change, Report};
use onceway::protocol::opening::{Facts, Frontier, Hindrance, hindrances};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::view::{Release, Standing, View};
use onceway::protocol::window;

use crate::model::parts::{Opening, Parts, register_id};
use crate::model::state::{Given, Site, ViewId};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wish {
    Lose { of: Site, frontier: u8 },
    Seal { of: Site, seal: u8 },
    Move { target: ViewId, given: [Option<Given>; 2] },
    Kill,
    Swap { of: Site, id: u8 },
}

impl Parts {
    /// The wanted next view; 0 if it is not legal.
    pub fn wished(&self, base: ViewId, wish: Wish) -> ViewId {
        self.wishes.get((base, wish), || {
            let view = self.views.get(base);
            let change = match wish {
                Wish::Lose { of, frontier } => {
                    Change::Lose { region: self.name(of).clone(), frontier: frontier.into() }
                }
                Wish::Seal { of, seal } => {
                    Change::Seal { region: self.name(of).clone(), generation: 1, seal: seal.into() }
                }
                Wish::Move { target, given } => self.moved(target, &given),
                Wish::Kill => Change::Kill,
                Wish::Swap { of, id } => {
                    let mut voters = view.voters().clone();
                    voters.insert(self.name(of).clone(), register_id(id));
                    Change::Voters(voters)
                }
            };
            view.next(&change).map_or(0, |next| self.view(&next))
        })
    }

    fn moved(&self, target: ViewId, given: &[Option<Given>; 2]) -> Change {
        let drafted = self.views.get(target);
        let report = |given: &Given| {
            let placement = self.views.get(given.target).placement();
            let base = self.views.get(given.target).epoch() - 1;
            let seen = drafted.losses().map(|(of, _)| {
                let seen = given.seen[usize::from(self.site(&of.region))];
                (of, u64::from(seen))
            });
            let report = Report {
                generation: 1,
                seal: given.seal.into(),
                release: Release { base, target: placement },
                seen: seen.collect(),
            };
            (self.name(given.by).clone(), report)
        };
        let reports = given.iter().flatten().map(report).collect();
        Change::Move { target: drafted, reports }
    }

    /// The draft by which a region serves no more, or serves again; 0 if there is none.
    pub fn draft(&self, base: ViewId, of: Site) -> ViewId {
        self.drafts.get((base, of), || {
            let view = self.views.get(base);
            let standing = match view.standing(self.name(of)) {
                Some(Standing::Serving) => Standing::Sealed { drained: true },
                Some(Standing::Sealed { .. }) => Standing::Serving,
                Some(Standing::Lost { .. }) | None => return 0,
            };
            let standings = BTreeMap::from([(self.name(of).clone(), standing)]);
            let draft = view.draft(view.ring().clone(), view.escrow().clone(), &standings);
            draft.map_or(0, |draft| self.view(&draft))
        })
    }

    /// The heartbeats that a region has applied once it has fetched the missing rows, and true if
    /// it may open then. `there` marks the regions that have adopted the view and so may be asked.
    /// Windows are over, and no claim is lodged: the simulation covers those.
    pub fn opening(&self, view: ViewId, me: Site, applied: [[u8; 3]; 3], there: [bool; 3]) -> Opening {
        self.opens.get((view, me, applied, there), || {
            let view = self.views.get(view);
            let lost: BTreeSet<Origin> = view.losses().map(|(origin, _)| origin).collect();
            let mut mine = applied[usize::from(me)];
            let mut frontiers = BTreeMap::new();
            for by in (0..self.regions).filter(|by| *by != me && there[usize::from(*by)]) {
                for of in &lost {
                    let applied = applied[usize::from(by)][usize::from(self.site(&of.region))];
                    frontiers.insert(
                        (self.name(by).clone(), of.clone()),
                        Frontier { applied: applied.into(), seal: 0 },
                    );
                }
            }
            let imports = self.hindered(&view, me, mine, &lost, &frontiers);
            for hindrance in imports {
                if let Hindrance::Import { origin, from: _, upto } = hindrance {
                    let have = &mut mine[usize::from(self.site(&origin.region))];
                    *have = (*have).max(upto as u8);
                }
            }
            let open = self.hindered(&view, me, mine, &lost, &frontiers).is_empty();
            (mine, open)
        })
    }

    fn hindered(
        &self,
        view: &View,
        me: Site,
        mine: [u8; 3],
        lost: &BTreeSet<Origin>,
        frontiers: &BTreeMap<(RegionName, Origin), Frontier>,
    ) -> Vec<Hindrance> {
        let of = |site: Site| Origin { region: self.name(site).clone(), generation: 1 };
        let applied = (0..self.regions).map(|site| (of(site), u64::from(mine[usize::from(site)]))).collect();
        let windows = lost.iter().map(|origin| (origin.clone(), window::Standing::Over)).collect();
        hindrances(&Facts {
            view,
            me: &of(me),
            applied: &applied,
            windows: &windows,
            frontiers,
            waived: &BTreeSet::new(),
            converted: lost,
            keepers: &BTreeSet::new(),
        })
    }
}

//! Rules across files: the region against the ring, the routes against the clocks and the ring.
//!
//! `mod` calls it once all files are read. Every message says what fails without the rule.

use std::time::Duration;

use super::listen::Listen;
use super::reader::{Located, Problems};
use super::region::Others;
use super::ring::RingFile;
use super::routes::RouteAt;
use super::span::{show, show_size, whole_millis};
use super::upstreams::Named;
use super::values::{ADDRESSES, ByRegion, ELSEWHERE, PUBLISHERS};
use crate::gateway::authority::failover::Failover;
use crate::gateway::policy::route::{Alone, Escrow, Mode, Policy};
use crate::gateway::settings::Timings;
use crate::protocol::lifetime::Retention;
use crate::protocol::record::Recovery;
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;
use crate::protocol::time::Drift;

/// Reports what `judge` finds wrong with the policies, each with its route.
fn each(routes: &[RouteAt], problems: &Problems, judge: impl Fn(&Policy, &dyn Fn(String))) {
    for route in routes {
        if let Some(policy) = route.value.policy() {
            judge(policy, &|text| problems.add(&route.at, format!("route {:?}: {text}", route.value.name)));
        }
    }
}

pub fn region_in_ring(me: &Located<RegionName>, others: &Others, file: &RingFile, problems: &Problems) {
    let (ring, witnesses) = (&*file.ring, &file.failover.witnesses);
    let Located { at, value: me } = me;
    if !has(ring, me) {
        let names: Vec<&str> = ring.regions().iter().map(|region| region.name.as_str()).collect();
        let names = names.join(", ");
        return problems.add(at, format!(
            "region {me} is not in the ring, which has {names}: add it there (weight 0 for an edge), or name another"
        ));
    }
    let Others { addresses, elsewhere, hears, knows, publishers, .. } = others;
    if ring.regions().len() > 1 || !witnesses.is_empty() {
        if hears.value == Some(false) {
            problems.add(
                &hears.at,
                "[listen]: peer is missing: say where other regions connect, such as peer = \"0.0.0.0:7403\"",
            );
        }
        if !knows.value {
            problems.add(&knows.at, "[peer] is missing: say how peers are known and found: certificate, key, ca and [peer.addresses]");
        }
    } else if hears.value == Some(true) && !knows.value {
        problems.add(&hears.at, "[listen]: peer is there without a [peer]: a deployment of one region needs neither, so remove it");
    }
    let members = Members { me, ring, problems };
    members.all_in(addresses, ADDRESSES, "its peer listener, host:port");
    for witness in witnesses.iter().filter(|witness| !addresses.mentions(witness)) {
        let why = format!(
            "{ADDRESSES} has no {witness}: add {witness} = \"...\", the listener of that witness, host:port"
        );
        problems.add(&addresses.at, why);
    }
    members.only_in(addresses, ADDRESSES, witnesses);
    members.only_in(elsewhere, ELSEWHERE, &[]);
    if let Some(publishers) = publishers {
        members.all_in(publishers, PUBLISHERS, "the libpq connection string of its Postgres");
        members.only_in(publishers, PUBLISHERS, &[]);
    }
}

/// Checks that the front names principals: without, a route bound to them could take nothing.
pub fn front_names_principals(binding: Option<&RouteAt>, listen: &Listen, problems: &Problems) {
    if let Some(route) = binding
        && listen.trusted.as_ref().is_some_and(|front| front.principal_header.is_none())
    {
        let why = format!(
            "route {:?}: bind = \"principal\", and [listen.trusted] has no principal_header: name the \
             header in which the front names the principal",
            route.value.name
        );
        problems.add(&route.at, why);
    }
}

/// Checks that each body fits into the room for all: a larger one would always be refused.
pub fn bodies_fit(routes: &[RouteAt], listen: &Listen, problems: &Problems) {
    let most = listen.at_once.bodies;
    each(routes, problems, |policy, fail| {
        if policy.body_limit > most {
            let [limit, most] = [policy.body_limit, most].map(show_size);
            fail(format!(
                "body_limit {limit} is more than all bodies at once may take, {most}: raise bodies under \
                 [listen.limits], or lower it"
            ));
        }
    });
}

fn has(ring: &Ring, name: &RegionName) -> bool {
    ring.regions().iter().any(|region| region.name == *name)
}

struct Members<'a> {
    me: &'a RegionName,
    ring: &'a Ring,
    problems: &'a Problems,
}

impl Members<'_> {
    /// Checks that the table names every region but this one.
    fn all_in<T>(&self, table: &ByRegion<T>, name: &str, what: &str) {
        let others = self.ring.regions().iter().map(|region| &region.name).filter(|one| *one != self.me);
        for region in others.filter(|region| !table.mentions(region)) {
            self.problems.add(&table.at, format!("{name} has no {region}: add {region} = \"...\", {what}"));
        }
    }

    /// Checks that the table names neither this region nor a strange one but `witnesses`.
    fn only_in<T>(&self, table: &ByRegion<T>, name: &str, witnesses: &[RegionName]) {
        for (region, Located { at, .. }) in &table.entries {
            let why = match region {
                region if region == self.me => "is this region",
                region if has(self.ring, region) || witnesses.contains(region) => continue,
                _ => "the ring does not have",
            };
            self.problems.add(at, format!("{name} names {region}, which {why}: remove it"));
        }
    }
}

/// Checks that upstreams can be asked: a probe goes to the region of the attempt.
pub fn probes_reach(me: &RegionName, others: &Others, ring: &Ring, routes: &[RouteAt], problems: &Problems) {
    let probed = |route: &&RouteAt| probes(route) && route.value.upstream().is_none();
    let (Some(false), Some(probed)) = (others.shared, routes.iter().find(probed)) else { return };
    let owners = ring.regions().iter().filter(|region| region.weight > 0 && region.name != *me);
    for region in owners.filter(|region| !others.elsewhere.mentions(&region.name)) {
        let why = format!(
            "{ELSEWHERE} has no {}, but route {:?} probes and the upstreams are not shared: add its \
             upstream's address, or write shared = true if any upstream can answer for all",
            region.name, probed.value.name
        );
        problems.add(&others.elsewhere.at, why);
    }
}

fn probes(route: &RouteAt) -> bool {
    route.value.policy().is_some_and(|policy| policy.recovery == Recovery::Probe)
}

/// Checks that named upstreams exist here, and that probed ones can answer for all regions.
pub fn upstreams_exist(others: &Others, ring: &Ring, routes: &[RouteAt], problems: &Problems) {
    for (route, name) in routes.iter().filter_map(|route| Some((route, route.value.upstream()?))) {
        let of = &route.value.name;
        match others.named.get(&**name) {
            None => {
                let why = format!(
                    "route {of:?} goes to upstream {name:?}, which is not here: add [upstreams.{name}] with its addresses"
                );
                problems.add(&others.file, why);
            }
            Some(Located { at, value: Some(Named { shared: false, .. }) })
                if ring.regions().len() > 1 && probes(route) =>
            {
                let why = format!(
                    "[upstreams.{name}]: route {of:?} probes it also for other regions' attempts: write \
                     shared = true if it knows of all effects, or choose another recovery for the route"
                );
                problems.add(at, why);
            }
            Some(_) => {}
        }
    }
}

/// Checks that claims under escrow have a holder. A route that refuses keys without a holder must
/// have one at least while all regions serve.
pub fn escrow_has_a_holder(routes: &[RouteAt], ring: &Ring, problems: &Problems) {
    let owners = ring.regions().iter().filter(|region| region.weight > 0).count();
    let alone = ring.pinned().find(|(_, order)| order.names().len() < 2);
    let why = match (owners, &alone) {
        (..2, _) => "only one region of the ring owns keys".to_owned(),
        (2.., Some((tenant, order))) => format!("tenant {tenant} is pinned to {} alone", order.home()),
        (2.., None) => return,
    };
    each(routes, problems, |policy, fail| match policy.escrow {
        Escrow::Claim(Alone::Refuse) | Escrow::ClaimAndAnswer(Alone::Refuse) => fail(format!(
            "under escrow the next region holds the claims, but {why}, so its new keys would always be \
             refused: write escrow_alone = \"run\" (they run without escrow), or name a second region"
        )),
        Escrow::Off | Escrow::Claim(Alone::Run) | Escrow::ClaimAndAnswer(Alone::Run) => {}
    });
}

/// Checks that no route promises a key a longer life than `ring.toml` allows.
pub fn lives_fit(routes: &[RouteAt], max_life: Option<Retention>, problems: &Problems) {
    let Some(Retention::For(most)) = max_life else { return };
    each(routes, problems, |policy, fail| {
        let life = policy.life();
        if life > Retention::For(most) {
            let life = match life {
                Retention::For(span) => show(span),
                Retention::Never => "ever".to_owned(),
            };
            let most = show(most);
            fail(format!(
                "its keys live for {life}, which is more than max_life {most} of ring.toml (hold, \
                 settle_time, retention and tombstone together): shorten retention, or raise max_life in \
                 all regions"
            ));
        }
    });
}

/// Checks each policy against the longest outage that an obedient client may have to wait for.
///
/// Such a client comes back when it is told to. A single region has no successor, so nothing is
/// checked.
pub fn outlives_an_outage(routes: &[RouteAt], ring: &Ring, failover: &Failover, problems: &Problems) {
    if ring.regions().iter().filter(|region| region.weight > 0).count() < 2 {
        return;
    }
    let (lease, beyond) = (failover.lease, failover.window.beyond);
    each(routes, problems, |policy, fail| {
        let Policy { hold, settle_time, retention: Retention::For(retention), tombstone, .. } = *policy
        else {
            return;
        };
        // Otherwise the next try of the client finds the key forgotten, and it runs once more.
        let window = hold + settle_time + lease + beyond;
        if retention + tombstone <= window {
            let [hold, settle_time, lease] = [hold, settle_time, lease].map(show);
            let [retention, tombstone, window, beyond] = [retention, tombstone, window, beyond].map(show);
            fail(format!(
                "retention {retention} and tombstone {tombstone} together must be longer than the retry \
                 window {window} (hold {hold}, settle_time {settle_time}, and of ring.toml lease {lease} \
                 and beyond {beyond}): a client that retries through the loss of a region would run its \
                 request again; lengthen retention"
            ));
        }
    });
}

/// Least room in a hold beyond its parts, so that a send is possible even if everything is slow.
const ROOM: Duration = Duration::from_millis(100);

/// Checks each policy against the clocks and the gateway's bounds.
pub fn routes_fit(routes: &[RouteAt], drift: Drift, timings: &Timings, problems: &Problems) {
    each(routes, problems, |policy, fail| policy_fits(policy, drift, timings, fail));
}

fn policy_fits(policy: &Policy, drift: Drift, timings: &Timings, fail: &dyn Fn(String)) {
    let Policy { hold, wait, upstream_timeout, settle_time, .. } = *policy;
    let usable = drift.holder(hold);
    // Another region is asked before the send, and again before the answer is given. A region that
    // is silent for longer counts as unreachable.
    let silent = timings.silent_after;
    let (lodging, lodged) = match policy.escrow {
        Escrow::Off => (Duration::ZERO, String::new()),
        Escrow::Claim(_) => (silent, format!(" escrow ({}),", show(silent))),
        Escrow::ClaimAndAnswer(_) => (silent * 2, format!(" escrow (twice {}),", show(silent))),
    };
    let needed = timings.claim_within + lodging + upstream_timeout + ROOM;
    // Otherwise `protocol::lease::SendBy` would forbid the send of a slow claim, and with a much
    // shorter hold of every claim.
    if usable < needed {
        let [hold, usable, needed, margin] = [hold, whole_millis(usable), needed, drift.margin].map(show);
        let [claim, timeout, room] = [timings.claim_within, upstream_timeout, ROOM].map(show);
        fail(format!(
            "hold {hold} is too short: {usable} of it can be relied on (clock drift {} ppm, margin {margin}), \
             but claiming ({claim}),{lodged} the upstream (upstream_timeout {timeout}) and some room ({room}) \
             need {needed}; lengthen hold or shorten upstream_timeout",
            drift.ppm
        ));
    }
    // A duplicate that waits longer than the hold waits for an attempt that is over.
    if wait > hold {
        fail(format!("wait {} is longer than hold {}: shorten wait", show(wait), show(hold)));
    }
    let Retention::For(retention) = policy.retention else { return };
    // Otherwise a job could outlive the key that stops it from running twice.
    if policy.mode != Mode::Sync && policy.accept.request_retention > retention {
        let [request, retention] = [policy.accept.request_retention, retention].map(show);
        fail(format!(
            "request_retention {request} is longer than retention {retention}: shorten request_retention, \
             or lengthen retention"
        ));
    }
    // Otherwise a key could be forgotten while its attempt may still be at work.
    if retention <= hold + settle_time {
        let [retention, hold, settle_time] = [retention, hold, settle_time].map(show);
        fail(format!(
            "retention {retention} must be longer than hold {hold} and settle_time {settle_time} together: \
             lengthen retention"
        ));
    }
}

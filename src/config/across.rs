//! Rules across files: the region against the ring, the routes against the clocks and the ring.
//!
//! `mod` calls it once all files are read. Every message says what fails without the rule. This
//! file must not read anything.

use std::time::Duration;

use super::by_region::{ADDRESSES, ByRegion, ELSEWHERE, PUBLISHERS};
use super::listen::Listen;
use super::reader::{Located, Problems};
use super::region::Others;
use super::ring::RingFile;
use super::routes::RouteAt;
use super::span::{show, show_size};
use crate::gateway::authority::failover::Failover;
use crate::gateway::policy::route::{Alone, Escrow, Mode, Policy};
use crate::gateway::settings::Timings;
use crate::protocol::lifetime::Retention;
use crate::protocol::record::Recovery;
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;
use crate::protocol::time::Drift;

/// Checks the region file against the ring.
pub fn region_in_ring(me: &Located<RegionName>, others: &Others, file: &RingFile, problems: &Problems) {
    let (ring, witnesses) = (&*file.ring, &file.failover.witnesses);
    let Located { at, value: me } = me;
    if !has(ring, me) {
        let names: Vec<&str> = ring.regions().iter().map(|region| region.name.as_str()).collect();
        problems.add(
            at,
            format!(
                "region {me} is not in the ring, which has {}: add it there (weight 0 for an edge), or name another",
                names.join(", ")
            ),
        );
        return;
    }
    let Others { addresses, elsewhere, shared: _, named: _, file: _, hears, knows, publishers } = others;
    if ring.regions().len() > 1 || !witnesses.is_empty() {
        if hears.value == Some(false) {
            let text =
                "[listen]: peer is missing: say where other regions connect, such as peer = \"0.0.0.0:7403\"";
            problems.add(&hears.at, text.to_owned());
        }
        if !knows.value {
            let text = "[peer] is missing: say how peers are known and found: certificate, key, ca and [peer.addresses]";
            problems.add(&knows.at, text.to_owned());
        }
    } else if hears.value == Some(true) && !knows.value {
        let text = "[listen]: peer is there without a [peer]: a deployment of one region needs neither, so remove it";
        problems.add(&hears.at, text.to_owned());
    }
    let members = Members { me, ring, problems };
    members.all_in(addresses, ADDRESSES, "its peer listener, host:port");
    for witness in witnesses.iter().filter(|witness| !addresses.mentions(witness)) {
        problems.add(
            &addresses.at,
            format!(
                "{ADDRESSES} has no {witness}: add {witness} = \"...\", the listener of that witness, host:port"
            ),
        );
    }
    members.only_in(addresses, ADDRESSES, witnesses);
    members.only_in(elsewhere, ELSEWHERE, &[]);
    if let Some(publishers) = publishers {
        members.all_in(publishers, PUBLISHERS, "the libpq connection string of its Postgres");
        members.only_in(publishers, PUBLISHERS, &[]);
    }
}

/// Checks that the front names principals. A front without them could never send a request on a
/// route that binds its keys to them.
pub fn front_names_principals(route: &RouteAt, listen: &Listen, problems: &Problems) {
    if listen.trusted.as_ref().is_some_and(|front| front.principal_header.is_none()) {
        problems.add(
            &route.at,
            format!(
                "route {:?}: bind = \"principal\", and [listen.trusted] has no principal_header: name the header in which the front names the principal",
                route.value.name
            ),
        );
    }
}

/// Checks that each body fits into the room for all bodies. A larger body would be refused as
/// overloaded each time it is sent.
pub fn bodies_fit(routes: &[RouteAt], listen: &Listen, problems: &Problems) {
    let most = listen.at_once.bodies;
    for route in routes {
        if let Some(policy) = policy(route).filter(|policy| policy.body_limit > most) {
            let (limit, most) = (show_size(policy.body_limit), show_size(most));
            problems.add(
                &route.at,
                format!(
                    "route {:?}: body_limit {limit} is more than all bodies at once may take, {most}: raise bodies under [listen.limits], or lower it",
                    route.value.name
                ),
            );
        }
    }
}

fn has(ring: &Ring, name: &RegionName) -> bool {
    ring.regions().iter().any(|region| region.name == *name)
}

/// The ring's regions, as this region sees them.
struct Members<'a> {
    me: &'a RegionName,
    ring: &'a Ring,
    problems: &'a Problems,
}

impl Members<'_> {
    /// Checks that the table names every region but this one.
    fn all_in<T>(&self, table: &ByRegion<T>, name: &str, what: &str) {
        let others = self.ring.regions().iter().filter(|region| region.name != *self.me);
        for region in others.filter(|region| !table.mentions(&region.name)) {
            self.problems
                .add(&table.at, format!("{name} has no {0}: add {0} = \"...\", {what}", region.name));
        }
    }

    /// Checks that the table names neither this region nor one outside the ring. It may name
    /// `witnesses`.
    fn only_in<T>(&self, table: &ByRegion<T>, name: &str, witnesses: &[RegionName]) {
        for (region, located) in &table.entries {
            if region == self.me {
                self.problems
                    .add(&located.at, format!("{name} names {region}, which is this region: remove it"));
            } else if !has(self.ring, region) && !witnesses.contains(region) {
                self.problems.add(
                    &located.at,
                    format!("{name} names {region}, which the ring does not have: remove it"),
                );
            }
        }
    }
}

/// Checks the routes against the upstreams that can be asked: a probe goes to the region of the
/// attempt.
pub fn probes_reach(me: &RegionName, others: &Others, ring: &Ring, routes: &[RouteAt], problems: &Problems) {
    let probes = |route: &&RouteAt| {
        let asks = |policy: &Policy| policy.recovery == Recovery::Probe && policy.upstream.is_none();
        policy(route).is_some_and(asks)
    };
    let (Some(false), Some(probed)) = (others.shared, routes.iter().find(probes)) else { return };
    let owners = ring.regions().iter().filter(|region| region.weight > 0 && region.name != *me);
    for region in owners.filter(|region| !others.elsewhere.mentions(&region.name)) {
        problems.add(
            &others.elsewhere.at,
            format!(
                "{ELSEWHERE} has no {}, but route {:?} probes and the upstreams are not shared: add its upstream's address, \
                 or write shared = true if any upstream can answer for all",
                region.name, probed.value.name
            ),
        );
    }
}

/// Checks that the upstreams that routes name exist here, and that those that are probed can answer
/// for all regions.
pub fn upstreams_exist(others: &Others, ring: &Ring, routes: &[RouteAt], problems: &Problems) {
    for (route, name) in routes.iter().filter_map(|route| Some((route, route.value.upstream()?))) {
        match others.named.get(&**name) {
            None => problems.add(
                &others.file,
                format!(
                    "route {:?} goes to upstream {name:?}, which is not here: add [upstreams.{name}] with its addresses",
                    route.value.name
                ),
            ),
            Some(Located { at, value: false })
                if ring.regions().len() > 1
                    && policy(route).is_some_and(|policy| policy.recovery == Recovery::Probe) =>
            {
                problems.add(
                    at,
                    format!(
                        "[upstreams.{name}]: route {:?} probes it also for other regions' attempts: write shared = true if it knows of \
                         all effects, or choose another recovery for the route",
                        route.value.name
                    ),
                );
            }
            Some(_) => {}
        }
    }
}

/// Checks that claims under escrow have a holder. A route that refuses keys without a holder must
/// have one at least while all regions serve.
pub fn escrow_has_a_holder(routes: &[RouteAt], ring: &Ring, problems: &Problems) {
    let refuses = |route: &&RouteAt| {
        policy(route).is_some_and(|policy| match policy.escrow {
            Escrow::Claim(alone) | Escrow::ClaimAndAnswer(alone) => alone == Alone::Refuse,
            Escrow::Off => false,
        })
    };
    let owners = ring.regions().iter().filter(|region| region.weight > 0).count();
    let alone = ring.pinned().find(|(_, order)| order.names().len() < 2);
    for route in routes.iter().filter(refuses) {
        let fail = |why: String| {
            problems.add(
                &route.at,
                format!(
                    "route {:?}: under escrow the next region holds the claims, but {why}, so its new keys would always be refused: \
                     write escrow_alone = \"run\" (they run without escrow), or name a second region",
                    route.value.name
                ),
            );
        };
        match (owners, &alone) {
            (..2, _) => fail("only one region of the ring owns keys".to_owned()),
            (2.., Some((tenant, order))) => {
                fail(format!("tenant {tenant} is pinned to {} alone", order.home()))
            }
            (2.., None) => {}
        }
    }
}

/// Checks that no route promises a key a longer life than `ring.toml` allows.
pub fn lives_fit(routes: &[RouteAt], max_life: Option<Retention>, problems: &Problems) {
    for route in routes {
        let Some((Retention::For(most), policy)) = max_life.zip(policy(route)) else { continue };
        let life = policy.life();
        if life > Retention::For(most) {
            problems.add(
                &route.at,
                format!(
                    "route {:?}: its keys live for {}, which is more than max_life {} of ring.toml (hold, settle_time, retention and tombstone \
                     together): shorten retention, or raise max_life in all regions",
                    route.value.name,
                    lasting(life),
                    show(most)
                ),
            );
        }
    }
}

fn lasting(life: Retention) -> String {
    match life {
        Retention::For(span) => show(span),
        Retention::Never => "ever".to_owned(),
    }
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
    for route in routes {
        let Some(Policy { hold, settle_time, retention: Retention::For(retention), tombstone, .. }) =
            policy(route)
        else {
            continue;
        };
        // Otherwise the record of a key settled before the loss of its region is forgotten by the
        // client's next try. The key would run once more.
        let window = *hold + *settle_time + lease + beyond;
        if *retention + *tombstone <= window {
            problems.add(
                &route.at,
                format!(
                    "route {:?}: retention {} and tombstone {} together must be longer than the retry window {} (hold {}, settle_time {}, and of \
                     ring.toml lease {} and beyond {}): a client that retries through the loss of a region would run its request again; lengthen retention",
                    route.value.name,
                    show(*retention),
                    show(*tombstone),
                    show(window),
                    show(*hold),
                    show(*settle_time),
                    show(lease),
                    show(beyond)
                ),
            );
        }
    }
}

/// Least room in a hold beyond its parts, so that a send is possible even if everything is slow.
const ROOM: Duration = Duration::from_millis(100);

/// Checks each policy against the clocks and the gateway's bounds.
pub fn routes_fit(routes: &[RouteAt], drift: Drift, timings: &Timings, problems: &Problems) {
    for route in routes {
        if let Some(policy) = policy(route) {
            let name = &route.value.name;
            policy_fits(policy, drift, timings, &|text| {
                problems.add(&route.at, format!("route {name:?}: {text}"));
            });
        }
    }
}

fn policy_fits(policy: &Policy, drift: Drift, timings: &Timings, fail: &dyn Fn(String)) {
    let Policy { hold, wait, upstream_timeout, settle_time, retention, escrow, .. } = policy;
    let usable = drift.holder(*hold);
    // Another region is asked before the send, and again before the answer is given. A region that
    // is silent for longer counts as unreachable.
    let (lodging, lodged) = match escrow {
        Escrow::Off => (Duration::ZERO, String::new()),
        Escrow::Claim(_) => (timings.silent_after, format!(" escrow ({}),", show(timings.silent_after))),
        Escrow::ClaimAndAnswer(_) => {
            (timings.silent_after * 2, format!(" escrow (twice {}),", show(timings.silent_after)))
        }
    };
    let needed = timings.claim_within + lodging + *upstream_timeout + ROOM;
    // Otherwise `protocol::hold::SendBy` would forbid the send of a slow claim, and with a much
    // shorter hold of every claim.
    if usable < needed {
        fail(format!(
            "hold {} is too short: {} of it can be relied on (clock drift {} ppm, margin {}), but claiming ({}),{lodged} the upstream \
             (upstream_timeout {}) and some room ({}) need {}; lengthen hold or shorten upstream_timeout",
            show(*hold),
            show(round(usable)),
            drift.ppm,
            show(drift.margin),
            show(timings.claim_within),
            show(*upstream_timeout),
            show(ROOM),
            show(needed)
        ));
    }
    // A duplicate that waits longer than the hold waits for an attempt that is over.
    if wait > hold {
        fail(format!("wait {} is longer than hold {}: shorten wait", show(*wait), show(*hold)));
    }
    // Otherwise a job could outlive the key that stops it from running twice.
    if let Retention::For(retention) = *retention
        && policy.mode != Mode::Sync
        && policy.accept.request_retention > retention
    {
        fail(format!(
            "request_retention {} is longer than retention {}: shorten request_retention, or lengthen retention",
            show(policy.accept.request_retention),
            show(retention)
        ));
    }
    // Otherwise a key could be forgotten while its attempt may still be at work.
    if let Retention::For(retention) = *retention
        && retention <= *hold + *settle_time
    {
        fail(format!(
            "retention {} must be longer than hold {} and settle_time {} together: lengthen retention",
            show(retention),
            show(*hold),
            show(*settle_time)
        ));
    }
}

/// Rounds down to whole milliseconds.
fn round(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn policy(route: &RouteAt) -> Option<&Policy> {
    route.value.policy().map(|policy| &**policy)
}

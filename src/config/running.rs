//! The effect of new files on a running configuration: some settings are replaced, the others wait
//! for a restart.
//!
//! A reload must not change the settings on which ownership, leases, windows and clocks depend, nor
//! anything opened at the start. Every field is named here, so that a new one needs a decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::admin::Admin;
use super::listen::{Listen, TlsFiles};
use super::reader::{At, Located, Problems};
use super::region::{Log, Peer, Process, Store, Upstream};
use super::ring::timings;
use super::secret::Secret;
use super::upstreams::{Named, Service};
use super::{Config, across};
use crate::adapters::postgres::address::Address;
use crate::gateway::authority::failover::UpstreamHealth;
use crate::gateway::policy::route::{Route, Routes};

impl Config {
    /// Takes a new configuration over. Returns the next one, and the keys that wait for a restart.
    pub fn adopt(&self, read: Self) -> (Self, Vec<String>) {
        let mut restart = Vec::new();
        let Config { me, shared, credentials, process: read } = read;
        let mut now = self.process.clone();
        let mut differs = |key: &str, is: bool| {
            if is {
                restart.push(key.to_owned());
            }
        };
        differs("region", me != self.me);
        // Regions, weights and pins are a proposal, which `onceway ring apply` takes. All other
        // settings wait.
        for ((key, read), (_, now)) in shared.of_ring_file().into_iter().zip(self.shared.of_ring_file()) {
            differs(key, read != now);
        }
        differs("shadow", read.shadow != now.shadow);
        differs("[accept]", read.accept_key != now.accept_key);
        listeners(&now.listen, &read.listen, &mut differs);
        differs("[admin.tls] as such", read.admin.tls.is_some() != now.admin.tls.is_some());
        store(&mut now.store, read.store, &mut differs);
        upstream(&now.upstream, &read.upstream, &mut differs);
        named(&now.upstreams, &read.upstreams, &mut differs);
        differs("[peer] as such", read.peer.is_some() != now.peer.is_some());
        let peers = read.peer.as_ref().zip(now.peer.as_ref());
        differs("peer.addresses", peers.is_some_and(|(peer, now)| peer.addresses != now.addresses));
        differs("[otlp]", read.otlp != now.otlp);
        differs("log.format", read.log.format != now.log.format);
        let mut at_once = read.listen.at_once;
        let shared = match self.fits(&shared.routes) {
            Ok(()) => self.shared.with_routes(shared.routes),
            Err(why) => {
                restart.push(format!("routes: {why}"));
                // The bodies of the present routes have to fit, too.
                at_once.bodies = at_once.bodies.max(now.listen.at_once.bodies);
                self.shared.clone()
            }
        };
        now.upstream.service.renew(&read.upstream.service);
        for (name, now) in &mut now.upstreams {
            read.upstreams.get(name).into_iter().for_each(|read| now.service.renew(&read.service));
        }
        // TLS begins and ends with a restart.
        let renewed = |now: Option<TlsFiles>, read| now.map(|tls| Option::unwrap_or(read, tls));
        // Tokens depend on the address: only a loopback address may have none.
        let admin = match read.listen.admin == now.listen.admin {
            true => Admin { tls: renewed(now.admin.tls, read.admin.tls), ..read.admin },
            false => now.admin,
        };
        let process = Process {
            shadow: now.shadow,
            quota: read.quota,
            listen: Listen {
                limits: read.listen.limits,
                at_once,
                tls: renewed(now.listen.tls, read.listen.tls),
                ..now.listen
            },
            admin,
            accept_key: now.accept_key,
            store: now.store,
            upstream: now.upstream,
            upstreams: now.upstreams,
            peer: now.peer.map(|now| Peer { files: read.peer.map_or(now.files, |read| read.files), ..now }),
            provision: read.provision,
            log: Log { format: now.log.format, level: read.log.level },
            otlp: now.otlp,
            drain: read.drain,
        };
        (Self { me: self.me.clone(), shared, credentials, process }, restart)
    }

    /// Checks that the routes fit the settings that stay.
    fn fits(&self, routes: &Routes) -> Result<(), String> {
        let (shared, known) = (&self.shared, &self.process.upstreams);
        let named = routes.0.iter().filter_map(|route| Some((&route.name, route.upstream()?)));
        if let Some((route, name)) = named.into_iter().find(|(_, name)| !known.contains_key(&***name)) {
            return Err(format!(
                "route {route:?} goes to upstream {name:?}, which this process began without"
            ));
        }
        let probes = |route: &&Route| {
            let unshared = |name: &Arc<str>| known.get(name).is_some_and(|named| !named.shared);
            route.upstream().is_some_and(unshared)
                && route.policy().is_some_and(|policy| policy.probe.is_some())
        };
        if shared.ring.regions().len() > 1
            && let Some(route) = routes.0.iter().find(probes)
        {
            return Err(format!("route {:?} probes an upstream that is not shared here", route.name));
        }
        let at = At::file(std::path::Path::new("routes"));
        let placed: Vec<_> =
            routes.0.iter().map(|route| Located { at: at.clone(), value: route.clone() }).collect();
        let problems = Problems::default();
        across::routes_fit(&placed, shared.drift, &timings(shared.heartbeat), &problems);
        across::lives_fit(&placed, shared.failover.max_life, &problems);
        across::outlives_an_outage(&placed, &shared.ring, &shared.failover, &problems);
        problems.into_sorted().into_iter().next().map_or(Ok(()), |problem| Err(problem.text))
    }
}

fn listeners(now: &Listen, read: &Listen, differs: &mut impl FnMut(&str, bool)) {
    let Listen { public, admin, peer, trusted, tls, edge, limits: _, at_once: _ } = read;
    differs("listen.public", *public != now.public);
    differs("listen.admin", *admin != now.admin);
    differs("listen.peer", *peer != now.peer);
    differs("[listen.trusted]", *trusted != now.trusted);
    differs("listen.trusted_proxies", edge.trusted_proxies != now.edge.trusted_proxies);
    differs("listen.proxy_protocol", edge.proxy_protocol != now.edge.proxy_protocol);
    differs("[listen.cors]", edge.cors != now.edge.cors);
    differs("[listen.tls] as such", tls.is_some() != now.tls.is_some());
}

/// Takes the URL over if it differs in role and password only.
fn store(now: &mut Store, read: Store, differs: &mut impl FnMut(&str, bool)) {
    let Store { url, pool, generation } = read;
    differs("store.pool", pool != now.pool);
    differs("store.generation", generation != now.generation);
    let place = |url: &Secret| url.reveal().parse::<Address>().ok();
    let places = place(&now.url).zip(place(&url));
    if url == now.url || places.is_some_and(|(now, read)| now.differs_only_in_login(&read)) {
        now.url = url;
    } else {
        differs("the store's URL: only its role and password change without one", true);
    }
}

fn upstream(now: &Upstream, read: &Upstream, differs: &mut impl FnMut(&str, bool)) {
    let Upstream { service, shared, elsewhere, health } = read;
    self::service("upstream.", &now.service, service, differs);
    differs("upstream.shared", *shared != now.shared);
    differs("[upstream.elsewhere]", *elsewhere != now.elsewhere);
    let shown = |health: &Option<UpstreamHealth>| format!("{health:?}");
    differs("[upstream.health]", shown(health) != shown(&now.health));
}

type All = BTreeMap<Arc<str>, Named>;

fn named(now: &All, read: &All, differs: &mut impl FnMut(&str, bool)) {
    differs("[upstreams]", read.keys().ne(now.keys()));
    for (name, now) in now {
        let Some(read) = read.get(name) else { continue };
        differs(&format!("[upstreams.{name}].shared"), read.shared != now.shared);
        service(&format!("[upstreams.{name}]."), &now.service, &read.service, differs);
    }
}

fn service(of: &str, now: &Service, read: &Service, differs: &mut impl FnMut(&str, bool)) {
    let Service { addresses, host, bounds, resolve_every, tls: _, server_name, credential: _ } = read;
    let address = if of == "upstream." { "address" } else { "addresses" };
    for (key, is) in [
        (address, *addresses != now.addresses),
        ("host", *host != now.host),
        ("resolve_every", *resolve_every != now.resolve_every),
        ("tls.server_name", *server_name != now.server_name),
        ("credentials.header", read.header() != now.header()),
        ("keep_idle", bounds.keep_idle != now.bounds.keep_idle),
        ("write_idle", bounds.write_idle != now.bounds.write_idle),
        ("max_age", bounds.max_age != now.bounds.max_age),
        ("connections", bounds.connections != now.bounds.connections),
    ] {
        differs(&format!("{of}{key}"), is);
    }
}

//! The first difference between two regions in settings that must be equal, and its two places.
//!
//! `shared` digests the same settings, and peers compare the digest. No value is shown: the seed is
//! one.

use std::path::Path;

use super::problems::At;
use super::routes::RouteAt;
use super::settings::written;
use super::shared::Shared;
use crate::gateway::policy::settings::settings;
use crate::protocol::ring::Ring;
use crate::protocol::ring_spec::RingSpec;

/// Places of the settings that all regions share.
#[derive(Debug)]
pub struct Places {
    ring: At,
    /// The whole file, then each route.
    routes: (At, Vec<At>),
}

impl Places {
    pub(super) fn of(ring: &Path, routes: &Path, all: &[RouteAt]) -> Self {
        let each = all.iter().map(|route| route.at.clone()).collect();
        Self { ring: At::file(ring), routes: (At::file(routes), each) }
    }

    fn route(&self, number: usize) -> &At {
        self.routes.1.get(number).unwrap_or(&self.routes.0)
    }
}

/// A setting that differs.
#[derive(Debug)]
pub struct Difference {
    /// Key with its tables, as in `onceway config explain`.
    pub key: String,
    pub route: Option<String>,
    /// Places of the setting in the two regions, or the places where it should be.
    pub at: [At; 2],
}

/// Finds the first differing setting of the ring itself, and the first of all others.
pub fn first(one: (&Shared, &Places), other: (&Shared, &Places)) -> [Option<Difference>; 2] {
    let (read, now) = (one.0, other.0);
    let of_ring_file = |key: &str| Difference {
        key: key.to_owned(),
        route: None,
        at: [one.1, other.1].map(|all| all.ring.clone()),
    };
    let ring =
        (read.ring.digest() != now.ring.digest()).then(|| of_ring_file(of_ring(&read.ring, &now.ring)));
    if read.digest == now.digest {
        return [ring, None];
    }
    let mut pairs = read.of_ring_file().into_iter().zip(now.of_ring_file());
    let rest = pairs.find(|(read, now)| read != now).map(|((key, _), _)| of_ring_file(key));
    [ring, rest.or_else(|| Some(of_routes(one, other)))]
}

/// The first setting in which two rings differ.
fn of_ring(one: &Ring, other: &Ring) -> &'static str {
    let (one, other) = (one.spec(), other.spec());
    let RingSpec { seed, place_by, regions, pins: _ } = &one;
    let names = |spec: &RingSpec| spec.regions.iter().map(|region| region.name.clone()).collect::<Vec<_>>();
    if *seed != other.seed {
        "seed"
    } else if *place_by != other.place_by {
        "place_by"
    } else if names(&one) != names(&other) {
        "region.name"
    } else if *regions != other.regions {
        "region.weight"
    } else {
        "pin"
    }
}

/// The first setting in which the routes of two regions differ. Their files of routes must differ.
fn of_routes(one: (&Shared, &Places), other: (&Shared, &Places)) -> Difference {
    let (routes, others) = (&one.0.routes.0, &other.0.routes.0);
    let mut pairs = routes.iter().zip(others).enumerate();
    let differing = pairs.find_map(|(number, (route, other))| {
        let (route, other) = (written(route), written(other));
        let key = settings().map(|setting| setting.key).find(|key| route.get(*key) != other.get(*key))?;
        Some((number, key))
    });
    // A route that only one of them has.
    let (number, key) = differing.unwrap_or((routes.len().min(others.len()), "name"));
    let route = routes.get(number).or(others.get(number)).map(|route| route.name.to_string());
    let at = [one.1, other.1].map(|places| places.route(number).clone());
    Difference { key: format!("route.{key}"), route, at }
}

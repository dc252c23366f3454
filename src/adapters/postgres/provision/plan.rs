//! The required state of a region's store, and its check before any server is asked.
//!
//! This file must not touch a store.

use std::path::PathBuf;

use super::super::address::Address;
use super::super::names;
use super::queries::Error;
use crate::protocol::region::Origin;

/// A database role. All databases of a cluster share its roles.
#[derive(Clone)]
pub struct Role {
    /// Name of the role: a-z, 0-9 and '_', at most 63.
    pub name: String,
    /// Password for a role that has to be created. An existing role keeps its own.
    pub password: Option<String>,
}

/// Required state of a region's store.
#[derive(Clone)]
pub struct Plan {
    /// The region, and the generation of its store.
    pub me: Origin,
    /// All origins of the deployment, `me` included: each gets its leaves in every store.
    ///
    /// The present generation of another region comes from the view of this store. If it follows no
    /// view yet, it comes from that region itself.
    pub all: Vec<Origin>,
    /// The deployment's id. A store of another deployment is left alone.
    pub deployment: String,
    /// The role of this region's gateways: reads everything, writes only the own leaves.
    pub gateway_role: Role,
    /// The role by which peers' subscriptions read this region's leaves. `None` leaves it out, and
    /// the publication, too: the deployment has one region.
    pub replication_role: Option<Role>,
    /// Address of the region's Postgres, as the owner of the store. The database must exist.
    pub admin: Address,
    /// For each peer, the libpq connection string by which the region's Postgres reaches the
    /// peer's, as the peer's replication role.
    pub subscribe: Vec<(Origin, String)>,
    /// The authorities of the peers' Postgres on this machine, PEM.
    ///
    /// `sslrootcert` in `subscribe` is a file of the region's Postgres. It is looked for on this
    /// machine only if this field is empty.
    pub publishers_ca: Option<PathBuf>,
    /// The schema, as migrations from the first on: [`super::MIGRATIONS`].
    pub migrations: &'static [&'static str],
}

pub(super) fn check_plan(plan: &Plan) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::Plan(why));
    if plan.deployment.is_empty() {
        return wrong("the deployment has no id".to_owned());
    }
    if !plan.all.contains(&plan.me) {
        return wrong(format!("{} is not among all origins", plan.me));
    }
    let replication = plan.replication_role.as_ref().map(|role| &role.name);
    for role in std::iter::once(&plan.gateway_role.name).chain(replication) {
        if !names::is_plain_role(role) {
            return wrong("a role's name must be 1 to 63 of a-z, 0-9 and '_', not first a digit".to_owned());
        }
    }
    if replication.is_none() && plan.all.len() > 1 {
        return wrong("peers need a replication role".to_owned());
    }
    if Some(&plan.gateway_role.name) == replication {
        return wrong("the gateway and the replication role must be two roles".to_owned());
    }
    for (peer, conninfo) in &plan.subscribe {
        if peer.region == plan.me.region || !plan.all.contains(peer) {
            return wrong(format!("{peer} is not a peer of {}", plan.me));
        }
        let name = names::subscription(&plan.me.region, &peer.region);
        if name.len() > names::MAX_IDENTIFIER {
            return wrong(format!(
                "the names of {} and {} are too long together: at most 53 characters fit into a slot's name",
                plan.me.region, peer.region
            ));
        }
        if let Err(why) = Address::of_libpq(conninfo, plan.publishers_ca.as_deref()) {
            return wrong(format!("the connection string of {peer}: {why}"));
        }
    }
    Ok(())
}

//! The store over real Postgres servers, through its public functions. Each test has servers of its
//! own, so they run in any order.
//!
//! - `authority`: escrows and imports.
//! - `jobs`: many waiting requests, and operators among workers.
//! - `gate`: statements among changes of the gate.
//! - `keys`: indexes, bounds of time, another region's address.
//! - `lanes`: separate connections for each kind of work, and calls that are refused at once.
//! - `leaving`: a region that left.
//! - `login`: a password that changes under load, and logins that the store refuses.
//! - `printed`: provisioning as SQL for psql.
//! - `provisioning`: making stores and connecting them.
//! - `rights`: the rights that roles need and must not have.
//! - `roles`: those of deploy/postgres/roles.sql.
//! - `upkeep`: reaping beside other origins.
//! - `support`: servers and plans.
//! - `tls`: the servers that gateways, owners and subscriptions trust.
//!
//! A test must not share a server.

mod authority;
mod batches;
mod gate;
mod jobs;
mod keys;
mod lanes;
mod leaving;
mod login;
mod printed;
mod provisioning;
mod rights;
mod roles;
pub mod support;
mod tls;
mod upkeep;

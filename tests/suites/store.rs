//! The store over real Postgres servers, through its public functions. Each test has servers of its
//! own. `ports::contract` has the promises that need no look into a store.

mod authority;
mod gate;
mod jobs;
mod keys;
mod leaving;
mod login;
mod printed;
mod provisioning;
mod rights;
pub mod support;
mod tls;
mod upkeep;

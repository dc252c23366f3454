//! The store over real Postgres servers, through its public door. Each test has servers of its own, so they run in any order.
//!
//! `authority`: what waits for what when the gate moves, escrows, imports, the upgrade. `jobs`: many waiting requests, and operators among
//! workers. `gate`: statements
//! among changes of the gate. `keys`: claims, outcomes, the gate. `lanes`: who waits behind whom, and who is refused at once. `leaving`: a region that left. `printed`: the same as SQL for psql. `provisioning`: making stores and connecting them. `rights`: what their roles may and must not do. `roles`: those of deploy/postgres/roles.sql.
//! `upkeep`: reaping beside other origins.
//! `support`: servers and plans. `tls`: whom gateways, owners and subscriptions believe.

mod authority;
mod gate;
mod jobs;
mod keys;
mod lanes;
mod leaving;
mod printed;
mod provisioning;
mod rights;
mod roles;
pub mod support;
mod tls;
mod upkeep;

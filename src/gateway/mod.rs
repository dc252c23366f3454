//! The gateway: the path of a request, and the loops beside it, over ports.
//!
//! `protocol` decides, `ports` perform, `server` feeds requests in. [`instance`] is one gateway;
//! its rooms are `impl`s of it. Read [`request`] first: the life of a request.
//! Then [`authority`], which says what may run here, and [`upkeep`], the loops. [`policy`],
//! [`credentials`] and [`limits`] say yes or no before a claim. [`operator`] and [`telemetry`] are
//! for people; [`shadow`] decides nothing.
//!
//! Nothing here may touch sockets, SQL or clocks except through ports, nor decide the meaning of
//! rows (`protocol::decide` does). Statuses stand in [`request::reply`] only.

pub mod authority;
pub mod credentials;
pub mod instance;
pub mod limits;
mod loops;
pub mod operator;
pub mod policy;
pub mod reloadable;
pub mod request;
pub mod settings;
pub mod shadow;
pub mod telemetry;
pub mod upkeep;

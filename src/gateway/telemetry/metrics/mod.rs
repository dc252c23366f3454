//! Counting: thin functions over the names in `ports::observe`, one per kind of event.
//!
//! [`prepare`] touches every series at the start. [`requests`] counts what clients get, [`store`]
//! the calls of the store and the work on its rows, [`region`] the region and its peers.
//!
//! Nothing here may decide anything. No label may hold a client's text: tenants are verified, and
//! bounded by [`super::labels`].

mod prepare;
mod region;
mod requests;
mod store;

pub(in crate::gateway) use self::prepare::*;
pub(in crate::gateway) use self::region::*;
pub(in crate::gateway) use self::requests::*;
pub(in crate::gateway) use self::store::*;

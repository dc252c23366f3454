//! Counting, from top to bottom: thin functions over the names in `ports::observe`.
//!
//! [`prepare`] touches every series at the start. [`requests`] counts what clients get, [`region`]
//! shows the region and its peers, [`store`] counts the store's calls and the work on its rows.
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

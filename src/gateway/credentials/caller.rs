//! A verified caller: the account, and the principal if the credential names one.
//!
//! The same name of two sources is two principals. This file must not verify anything.

use crate::protocol::digest::{Digest32, digest};
use crate::protocol::key::Tenant;

/// Bytes of a principal's name, at most.
pub const PRINCIPAL_LIMIT: usize = 255;

/// A verified caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The account. Keys belong to it, never to a credential.
    pub tenant: Tenant,
    /// The principal, if the credential names one. Only this digest binds records to a principal.
    pub principal: Option<Digest32>,
}

/// Source of a principal's name. The same name from two sources is two principals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voucher<'a> {
    /// The file of credentials, for an API token.
    File,
    /// The issuer of this `iss`.
    Issuer(&'a str),
    /// A trusted front.
    Front,
}

impl Caller {
    /// Makes a caller; the principal is given by its name.
    pub fn new(tenant: Tenant, voucher: Voucher<'_>, principal: Option<&str>) -> Self {
        let (kind, by) = match voucher {
            Voucher::File => ("file", ""),
            Voucher::Issuer(iss) => ("issuer", iss),
            Voucher::Front => ("front", ""),
        };
        let parts = |name| [kind, by, tenant.as_str(), name].map(str::as_bytes);
        let principal = principal.map(|name| digest("onceway/principal/1", &parts(name)));
        Self { tenant, principal }
    }
}

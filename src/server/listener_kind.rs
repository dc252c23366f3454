//! The two kinds of listeners for clients: public, and bound to a trusted front.
//!
//! On the public listener only credentials name the caller; on the trusted one the front's headers
//! do. Both remove these headers: no copy reaches any later code. `gateway::credentials::Vouched`
//! carries the front's caller on.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::adapters::headers::strip_look_alikes;
use crate::config::listen::Edge;
use crate::config::trusted::Trusted;
use crate::gateway::credentials::Vouched;
use crate::gateway::credentials::caller::{Caller, PRINCIPAL_LIMIT, Voucher};
use crate::protocol::key::Tenant;

/// The kind of a listener.
#[derive(Clone, Debug)]
pub enum Door {
    /// For everybody. The headers of the process's trusted front are removed.
    Public(Option<Arc<Trusted>>, Arc<Edge>),
    /// For the trusted front.
    Trusted(Arc<Trusted>),
}

impl Door {
    /// True if a client with this address may connect.
    pub(super) fn allows(&self, peer: IpAddr) -> bool {
        match self {
            Door::Public(..) => true,
            Door::Trusted(front) => front.allows(peer),
        }
    }

    /// Proxies and origins before it; before the trusted one is its front alone.
    pub(super) fn edge(&self) -> Option<&Edge> {
        match self {
            Door::Public(_, edge) => Some(edge),
            Door::Trusted(_) => None,
        }
    }

    /// Removes the front's headers. On the trusted listener, notes the caller that they name.
    pub(super) fn pass(&self, head: &mut Parts) {
        match self {
            Door::Public(None, _) => {}
            Door::Public(Some(front), _) => drop(take(front, &mut head.headers)),
            Door::Trusted(front) => {
                let caller = take(front, &mut head.headers);
                head.extensions.insert(Vouched(caller));
            }
        }
    }
}

fn take(front: &Trusted, headers: &mut HeaderMap) -> Option<Caller> {
    let tenant = one(headers, &front.tenant_header);
    let principal = front.principal_header.as_ref().map(|name| one(headers, name));
    let tenant = Tenant::parse(&tenant.ok()??).ok()?;
    let principal = principal.transpose().ok()?.flatten();
    if principal.as_ref().is_some_and(|name| name.len() > PRINCIPAL_LIMIT) {
        return None;
    }
    Some(Caller::new(tenant, Voucher::Front, principal.as_deref()))
}

/// Removes the header and returns its one value, if there is any. The error: more than one value,
/// or a value that is not visible text.
fn one(headers: &mut HeaderMap, name: &HeaderName) -> Result<Option<String>, ()> {
    let mut values = headers.get_all(name).iter();
    let found = match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) if !text.is_empty() => Ok(Some(text.to_owned())),
        (Some(_), _) => Err(()),
    };
    headers.remove(name);
    // A copy whose name has `_` for `-` would be left. Some readers take the two for the same name.
    strip_look_alikes(headers, name);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front() -> Arc<Trusted> {
        Arc::new(Trusted {
            address: "127.0.0.1:1".parse().unwrap(),
            tenant_header: HeaderName::from_static("x-tenant"),
            principal_header: Some(HeaderName::from_static("x-user")),
            from: Vec::new(),
        })
    }

    fn through(door: &Door, lines: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder();
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        door.pass(&mut head);
        assert_eq!(head.headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"], "{lines:?}");
        head
    }

    #[test]
    fn only_the_trusted_door_takes_a_tenant_from_its_header() {
        let lines = [("accept", "a"), ("X-Tenant", "acme"), ("X-User", "ann"), ("X_Tenant", "globex")];
        assert!(
            through(&Door::Public(Some(front()), Arc::default()), &lines)
                .extensions
                .get::<Vouched>()
                .is_none()
        );
        let head = through(&Door::Trusted(front()), &lines);
        let Some(Vouched(Some(caller))) = head.extensions.get::<Vouched>() else { panic!("not vouched for") };
        assert_eq!(*caller, Caller::new(Tenant::parse("acme").unwrap(), Voucher::Front, Some("ann")));
        let head = through(&Door::Trusted(front()), &lines[..2]);
        assert!(matches!(head.extensions.get(), Some(Vouched(Some(Caller { principal: None, .. })))));
    }

    #[test]
    fn unclear_front_headers_name_nobody() {
        let long = "a".repeat(PRINCIPAL_LIMIT + 1);
        for lines in [
            &[][..],
            &[("X-Tenant", "")],
            &[("X-Tenant", "ac me")],
            &[("X-Tenant", "acme"), ("X-Tenant", "acme")],
            &[("X-Tenant", "acme, globex")],
            &[("X-Tenant", "acme"), ("X-User", "ann"), ("X-User", "bob")],
            &[("X-Tenant", "acme"), ("X-User", "")],
            &[("X-Tenant", "acme"), ("X-User", &long)],
            &[("X-User", "ann")],
        ] {
            let mut all = vec![("accept", "a")];
            all.extend(lines);
            let head = through(&Door::Trusted(front()), &all);
            assert!(matches!(head.extensions.get(), Some(Vouched(None))), "{lines:?}");
        }
    }
}

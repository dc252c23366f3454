//! `[listen.trusted]`: a listener for a front that has verified the caller and names it.
//!
//! Such a listener believes everybody who reaches it. So it is on loopback, or says who may reach
//! it. `server::listener_kind` uses it.

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use toml::de::DeValue;

use super::reader::{self, Section};
use super::values::{self, socket};

/// A listener for a trusted front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// Address of the listener, plain HTTP.
    pub address: SocketAddr,
    /// Header in which the front names the tenant.
    pub tenant_header: HeaderName,
    /// Header in which the front names the principal; `None` if it names none.
    pub principal_header: Option<HeaderName>,
    /// Addresses from which the front may connect. Empty only on loopback: any process may.
    pub from: Vec<Network>,
}

impl Trusted {
    /// True if a client with this address may connect.
    pub fn allows(&self, peer: IpAddr) -> bool {
        self.from.is_empty() || self.from.iter().any(|network| network.contains(peer))
    }
}

/// A range of addresses, `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads a range, or one address. The error is one line that says what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} must be a range of addresses, such as \"10.0.0.0/8\"");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), |digits| digits.parse().map_err(|_| wrong()))?;
        let network = Self { address, prefix };
        if prefix > most {
            return Err(wrong());
        }
        if prefix == 0 {
            return Err(format!("{text:?} is everybody: name the front's own addresses"));
        }
        if bits(address) & !network.mask() != 0 {
            return Err(format!(
                "{text:?} has bits set beyond its prefix: write the first address of the range"
            ));
        }
        Ok(network)
    }

    /// True if the address is in the range. IPv4 addresses seen through IPv6 count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && bits(address) & self.mask() == bits(self.address)
    }

    /// The prefix's bits, at the top of 128.
    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0)
    }
}

/// An address's bits, at the top of 128.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    }
}

/// Reads ranges of addresses, at least one.
pub(super) fn networks(value: &DeValue<'_>) -> Result<Vec<Network>, String> {
    let read = |one: &DeValue<'_>| reader::text(one).and_then(|text| Network::parse(&text));
    reader::some(value, "name at least one range of addresses", read)
}

pub(super) fn read(section: Section<'_>) -> Option<Trusted> {
    let advice = "say where the front connects, such as address = \"127.0.0.1:7405\"";
    let address = section.required("address", advice, socket);
    let advice = "name the header in which the front names the tenant, such as tenant_header = \"X-Tenant\"";
    let tenant_header = section.required("tenant_header", advice, header);
    let principal_header = section.optional("principal_header", header);
    let from = section.optional("from", networks);
    if tenant_header.is_some() && tenant_header == principal_header {
        section.fail_at("principal_header", "tenant_header and principal_header must be two headers");
    }
    if let Some(address) = address.filter(|address| !address.ip().is_loopback() && !section.has("from")) {
        section.fail_at(
            "address",
            format!(
                "whoever reaches {address} can ask as any tenant: write from = [\"10.0.0.0/8\"] with the front's addresses, or listen on 127.0.0.1"
            ),
        );
    }
    let wrong = section.has("principal_header") && principal_header.is_none()
        || section.has("from") && from.is_none();
    let (address, tenant_header, from) = (address?, tenant_header?, from.unwrap_or_default());
    (!wrong).then_some(Trusted { address, tenant_header, principal_header, from })
}

/// Reads the name of a header that has no other meaning.
fn header(value: &DeValue<'_>) -> Result<HeaderName, String> {
    const TAKEN: [&str; 11] = [
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "idempotency-key",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    let is_taken = |name: &str| {
        name.starts_with("onceway-") || name.starts_with("x-forwarded-") || TAKEN.contains(&name)
    };
    values::header(&reader::text(value)?, |name| {
        is_taken(name.as_str())
            .then_some("means something else already: let the front use a header of its own")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_addresses_only() {
        let table = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "a00::", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::1/128", "::1", true),
        ];
        for (network, address, inside) in table {
            let network = Network::parse(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network:?} {address}");
        }
        for wrong in ["10.0.0.0/33", "10.0.0.1/8", "0.0.0.0/0", "::/0", "ten", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(Network::parse(wrong).is_err(), "{wrong}");
        }
    }
}

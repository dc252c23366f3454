//! The upstreams of a configuration, with the certificates and credentials that its files hold now.
//!
//! A start and each reload read them here. `config::upstreams` has checked the rest. Blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use http::HeaderValue;
use rustls::pki_types::ServerName;

use crate::adapters::upstream::{self, Base, ServiceSettings, Tls, UpstreamSettings};
use crate::config::Config;
use crate::config::region::Process;
use crate::config::upstreams::{Credential, Service};

/// The upstreams, with the certificates and credentials of now.
pub(super) fn upstreams(config: &Config) -> Result<UpstreamSettings> {
    let Process { upstream, upstreams, .. } = &config.process;
    let mut others = BTreeMap::new();
    for (region, address) in &upstream.elsewhere {
        others.insert(region.clone(), Base::parse(address)?);
    }
    let mut named = BTreeMap::new();
    for (name, one) in upstreams {
        let settings = service(&one.service).with_context(|| format!("[upstreams.{name}]"))?;
        named.insert(name.clone(), (settings, one.shared));
    }
    let own = service(&upstream.service).context("[upstream]")?;
    Ok(UpstreamSettings { me: config.me.clone(), own, shared: upstream.shared, others, named })
}

fn service(service: &Service) -> Result<ServiceSettings> {
    let Service { addresses, host, bounds, resolve_every, tls, server_name, credential } = service;
    let credential = match credential {
        None => None,
        Some(Credential { header, value }) => {
            // The error would quote the value.
            let value =
                HeaderValue::from_str(value.reveal()).ok().context("credentials are no header's value")?;
            Some(Arc::new(upstream::Credential::new(header.clone(), value)))
        }
    };
    Ok(ServiceSettings {
        addresses: addresses.iter().map(|text| Base::parse(text)).collect::<Result<_, _>>()?,
        host: host.clone(),
        bounds: bounds.clone(),
        resolve_every: *resolve_every,
        server_name: server_name.clone().map(ServerName::try_from).transpose()?,
        tls: Arc::new(Tls::load(tls)?),
        credential,
    })
}

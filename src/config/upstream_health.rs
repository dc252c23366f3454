//! `[upstream.health]` of the region file: the health check of the upstream, and the sickness that
//! asks for a drain.
//!
//! Without the table nothing is checked and nothing is drained. `gateway::authority::upstream` uses
//! it. This file must not read shared settings: `min_serving` and `stable_for` are in `ring.toml`.

use std::time::Duration;

use http::Uri;
use toml::de::DeValue;

use super::reader::{self, Section};
use super::span::show;
use crate::gateway::authority::failover::UpstreamHealth;

/// Reads the table. Errors are reported.
pub(super) fn read(mut section: Section<'_>) -> Option<UpstreamHealth> {
    section.rename("[upstream.health]".to_owned());
    let advice =
        "name a path of the upstream that answers 200 to 399 while it is well, such as path = \"/healthz\"";
    let path = section.required("path", advice, path);
    let span = |key, most: u64, usual: Duration| {
        let (least, most) = (Duration::from_millis(100), Duration::from_secs(most));
        section.optional(key, |value| reader::time(value, least, most)).unwrap_or(usual)
    };
    let every = span("every", 60, Duration::from_secs(2));
    let within = span("within", 60, Duration::from_secs(1));
    let sick_after = span("sick_after", 3_600, Duration::from_secs(15));
    let cool_down = span("cool_down", 86_400, Duration::from_secs(300));
    // One late answer must not move a region's keys.
    if sick_after < (every + within) * 2 {
        section.fail_at(
            "sick_after",
            format!(
                "sick_after {} must be at least two checks long (every {} and within {}, twice): lengthen it",
                show(sick_after),
                show(every),
                show(within)
            ),
        );
    }
    section.finish();
    path.map(|path| UpstreamHealth { path, every, within, sick_after, cool_down })
}

fn path(value: &DeValue<'_>) -> Result<Uri, String> {
    let text = reader::text(value)?;
    let uri = text.parse::<Uri>().ok().filter(|uri| text.starts_with('/') && uri.authority().is_none());
    uri.ok_or_else(|| format!("{text:?} must be a path on the upstream, such as \"/healthz\""))
}

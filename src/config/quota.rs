//! `[quota]` of a region file: limits for each tenant.
//!
//! They limit the number of keys, and the rates of requests that start a key, read a stored one, or
//! ask for an absent one. Each limit is optional, but one must be written. `gateway::limits::quota`
//! counts. This file must not know what a request costs.

use std::num::NonZeroU32;

use toml::de::DeValue;

use super::reader::{self, Section};
use crate::gateway::limits::quota::{Pace, Quota};

/// Reads the table. Errors are reported.
pub(super) fn read(section: Section<'_>) -> Option<Quota> {
    let before = section.stands("new_keys_per_second");
    let (new_keys, burst) =
        (section.optional("new_keys_per_second", count), section.optional("burst", count));
    let look_ups = section.optional("look_ups_per_second", count);
    let misses = section.optional("misses_per_second", count);
    let live_keys = section.optional("live_keys", keys);
    let any = ["new_keys_per_second", "look_ups_per_second", "misses_per_second", "live_keys"];
    if !any.iter().any(|key| section.stands(key)) {
        section.fail("limits nothing: say how many keys a tenant may start per second here, such as new_keys_per_second = 100, or look_ups_per_second, misses_per_second or live_keys");
    } else if burst.is_some() && !before {
        section.fail_at("burst", "burst is that of new_keys_per_second, which is missing: add it");
    }
    if let (Some(new_keys), Some(look_ups)) = (new_keys, look_ups)
        && look_ups < new_keys
    {
        section.fail_at(
            "look_ups_per_second",
            format!("look_ups_per_second {look_ups} must not be below new_keys_per_second {new_keys}: each request that starts a key takes one for as long as it runs"),
        );
    }
    section.finish();
    let even = |per_second| Pace { per_second, burst: per_second };
    Some(Quota {
        new_keys: new_keys.map(|per_second| Pace { per_second, burst: burst.unwrap_or(per_second) }),
        look_ups: look_ups.map(even),
        misses: misses.map(even),
        live_keys,
    })
}

fn count(value: &DeValue<'_>) -> Result<NonZeroU32, String> {
    up_to(value, 1_000_000)
}

fn keys(value: &DeValue<'_>) -> Result<NonZeroU32, String> {
    up_to(value, 1_000_000_000)
}

fn up_to(value: &DeValue<'_>, most: u64) -> Result<NonZeroU32, String> {
    let number = reader::number(value, 1, most)?;
    u32::try_from(number).ok().and_then(NonZeroU32::new).ok_or_else(|| "is out of range".to_owned())
}

//! `[quota]` of a region file: limits for each tenant.
//!
//! They limit the number of keys, and the rates of requests that start a key, read a stored one, or
//! ask for an absent one. Each limit is optional, but one must be written. `gateway::limits::quota`
//! counts.

use std::num::NonZeroU32;

use toml::de::DeValue;

use super::reader::{self, Section};
use crate::gateway::limits::quota::{Pace, Quota};

/// Reads the table. Errors are reported.
pub(super) fn read(section: Section<'_>) -> Option<Quota> {
    let limit = |key, most| section.optional(key, |value| up_to(value, most));
    let new_keys = limit("new_keys_per_second", 1_000_000);
    let burst = limit("burst", 1_000_000);
    let look_ups = limit("look_ups_per_second", 1_000_000);
    let misses = limit("misses_per_second", 1_000_000);
    let live_keys = limit("live_keys", 1_000_000_000);
    let any = ["new_keys_per_second", "look_ups_per_second", "misses_per_second", "live_keys"];
    if !any.iter().any(|key| section.stands(key)) {
        section.fail("limits nothing: say how many keys a tenant may start per second here, such as new_keys_per_second = 100, or look_ups_per_second, misses_per_second or live_keys");
    } else if burst.is_some() && !section.stands("new_keys_per_second") {
        section.fail_at("burst", "burst is that of new_keys_per_second, which is missing: add it");
    }
    if let (Some(new_keys), Some(look_ups)) = (new_keys, look_ups)
        && look_ups < new_keys
    {
        let why = format!(
            "look_ups_per_second {look_ups} must not be below new_keys_per_second {new_keys}: each \
             request that starts a key takes one for as long as it runs"
        );
        section.fail_at("look_ups_per_second", why);
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

fn up_to(value: &DeValue<'_>, most: u64) -> Result<NonZeroU32, String> {
    let number = reader::number(value, 1, most)?;
    u32::try_from(number).ok().and_then(NonZeroU32::new).ok_or_else(|| "is out of range".to_owned())
}

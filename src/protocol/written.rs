//! Values as JSON, for stores and for peers: the one spelling of each.
//!
//! Digests and 128-bit numbers are lower-case hex, bytes are base64, spans are whole seconds and
//! nanoseconds. So no value is rounded. A value in any other spelling is refused, in our own words:
//! a parser's words quote the message, which may hold keys.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::digest::Digest32;
use super::key::{Key, Tenant};
use super::region::{Origin, RegionName};
use super::versions::Versions;

/// Begins each error that names a value in our own words.
pub const MALFORMED: &str = "malformed: ";

pub(super) fn malformed<E: de::Error>(what: &str) -> E {
    E::custom(format_args!("{MALFORMED}{what}"))
}

/// Writes values as texts, and reads them from these texts.
macro_rules! as_text {
    ($($type:ty, $what:literal: $value:ident => $write:expr, $text:ident => $read:expr;)*) => {
        $(impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                out.serialize_str(&$write)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                let $text = text.as_str();
                $read.ok_or_else(|| $crate::written::malformed($what))
            }
        })*
    };
}
pub(super) use as_text;

as_text! {
    RegionName, "a region's name": name => name.as_str(), text => Self::parse(text).ok();
    Origin, "an origin": origin => origin.to_string(), text => Self::parse(text).ok();
    Tenant, "a tenant": tenant => tenant.as_str(), text => Self::parse(text).ok();
    Key, "a key": key => key.as_str(), text => Self::parse(text).ok();
    Digest32, "a digest": digest => digest.to_string(), text => Self::parse(text);
    Base64, "base64": bytes => STANDARD.encode(&bytes.0), text => STANDARD.decode(text).ok().map(Self);
    Versions, "versions": versions => versions.to_string(), text => Self::parse(text);
}

pub(super) fn hex128(number: u128) -> String {
    format!("{number:032x}")
}

/// Reads the output of [`hex128`], and nothing else.
pub(super) fn number128(text: &str) -> Option<u128> {
    u128::from_str_radix(text, 16).ok().filter(|number| hex128(*number) == text)
}

/// The longest span of a message: ten thousand years, since a key may be kept until the year 9999.
/// A database can add several of them to a date.
pub const LONGEST: Duration = Duration::from_secs(3_652_425 * 86_400);

fn bounded<E: de::Error>(span: Duration) -> Result<Duration, E> {
    if span <= LONGEST { Ok(span) } else { Err(malformed("a span of time is too long")) }
}

/// Spans of time, each as a pair of whole seconds and the nanoseconds beyond them.
pub mod span {
    use super::*;

    /// Writes a span.
    pub fn serialize<S: Serializer>(span: &Duration, out: S) -> Result<S::Ok, S::Error> {
        (span.as_secs(), span.subsec_nanos()).serialize(out)
    }

    /// Reads a span.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        match <(u64, u32)>::deserialize(from)? {
            (seconds, nanos @ 0..1_000_000_000) => bounded(Duration::new(seconds, nanos)),
            _ => Err(malformed("a span of time")),
        }
    }
}

/// Spans of time, each as whole nanoseconds.
pub mod nanos {
    use super::*;

    /// Writes a span, at most 584 years.
    pub fn serialize<S: Serializer>(span: &Duration, out: S) -> Result<S::Ok, S::Error> {
        u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).serialize(out)
    }

    /// Reads a span, which the type bounds.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

/// A span where it is not a field.
#[derive(Serialize, Deserialize)]
pub(super) struct Span(#[serde(with = "span")] pub(super) Duration);

/// Bytes in base64.
pub(super) struct Base64(pub(super) Vec<u8>);

/// The headers of an answer: a name in lower case and the bytes of a value that HTTP allows.
pub(super) mod headers {
    use super::*;

    pub fn serialize<S: Serializer>(headers: &[(String, Vec<u8>)], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(headers.iter().map(|(name, value)| (name, STANDARD.encode(value))))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Vec<u8>)>, D::Error> {
        let headers = Vec::<(String, Base64)>::deserialize(from)?;
        let read = headers.into_iter().map(|(name, Base64(value))| {
            let is_name = HeaderName::from_lowercase(name.as_bytes()).is_ok();
            let is_header = is_name && HeaderValue::from_bytes(&value).is_ok();
            is_header.then_some((name, value)).ok_or_else(|| malformed("a header of an answer"))
        });
        read.collect()
    }
}

/// Reads a status of HTTP; of an `Option`, also none.
pub(super) fn http_status<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Into<Option<u16>> + Copy,
{
    let read = T::deserialize(from)?;
    let is_status = read.into().is_none_or(|status| StatusCode::from_u16(status).is_ok());
    if is_status { Ok(read) } else { Err(malformed("a status")) }
}

/// Reads a text that a store takes: one without a zero byte.
pub fn plain<'de, D: Deserializer<'de>, T: From<String>>(from: D) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    if text.contains('\0') { Err(malformed("a text with a zero byte")) } else { Ok(text.into()) }
}

/// An entry of a map that is written as a list.
pub(super) trait Entry<K, V> {
    /// The entry of a key and its value.
    fn of(key: &K, value: &V) -> Self;

    /// The key and its value.
    fn parts(self) -> (K, V);
}

impl<K: Clone, V: Clone> Entry<K, V> for (K, V) {
    fn of(key: &K, value: &V) -> Self {
        (key.clone(), value.clone())
    }

    fn parts(self) -> (K, V) {
        self
    }
}

/// A map as a list of entries `E`, in which each key stands once.
pub(super) struct Listed<E>(PhantomData<E>);

impl<E> Listed<E> {
    pub(super) fn serialize<K, V, S>(map: &BTreeMap<K, V>, out: S) -> Result<S::Ok, S::Error>
    where
        E: Serialize + Entry<K, V>,
        S: Serializer,
    {
        out.collect_seq(map.iter().map(|(key, value)| E::of(key, value)))
    }

    pub(super) fn deserialize<'de, K: Ord, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        E: Deserialize<'de> + Entry<K, V>,
        D: Deserializer<'de>,
    {
        let entries = Vec::<E>::deserialize(from)?;
        let count = entries.len();
        let map: BTreeMap<K, V> = entries.into_iter().map(E::parts).collect();
        if map.len() == count { Ok(map) } else { Err(malformed("a list with an entry twice")) }
    }
}

/// Modules that write a value as an object with one member.
macro_rules! named {
    ($($name:ident: $about:literal,)*) => {
        $(#[doc = $about]
        pub mod $name {
            use super::*;

            #[derive(Serialize, Deserialize)]
            struct Named<T> {
                $name: T,
            }

            /// Writes the object.
            pub fn serialize<T: Serialize, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
                Named { $name: value }.serialize(out)
            }

            /// Reads the object.
            pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
                Named::deserialize(from).map(|Named { $name }| $name)
            }
        })*
    };
}

named! {
    epoch: "An epoch, as `{\"epoch\": …}`.",
    id: "An id, as `{\"id\": …}`.",
    number: "A number, as `{\"number\": …}`.",
    page: "A page, as `{\"page\": …}`.",
    region: "A region, as `{\"region\": …}`.",
    status: "A status, as `{\"status\": …}`.",
    why: "A reason, as `{\"why\": …}`.",
}

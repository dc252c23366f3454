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

/// The form in which a value is written: texts, numbers and lists, which serde knows.
pub trait Form<T>: Sized {
    /// The form of a value.
    fn of(value: &T) -> Self;

    /// The value; or the name of what is malformed.
    fn value(self) -> Result<T, &'static str>;
}

/// Writes and reads values by a form.
pub struct As<F>(PhantomData<F>);

impl<F> As<F> {
    /// Writes a value.
    pub fn serialize<T, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error>
    where
        F: Form<T> + Serialize,
    {
        F::of(value).serialize(out)
    }

    /// Reads a value.
    pub fn deserialize<'de, T, D: Deserializer<'de>>(from: D) -> Result<T, D::Error>
    where
        F: Form<T> + Deserialize<'de>,
    {
        F::deserialize(from)?.value().map_err(malformed)
    }
}

/// Spans of time, each as a pair of whole seconds and the nanoseconds beyond them.
pub type Seconds = As<(u64, u32)>;

impl Form<Duration> for (u64, u32) {
    fn of(span: &Duration) -> Self {
        (span.as_secs(), span.subsec_nanos())
    }

    fn value(self) -> Result<Duration, &'static str> {
        let (seconds, nanos @ 0..1_000_000_000) = self else { return Err("a span of time") };
        let span = Duration::new(seconds, nanos);
        if span <= LONGEST { Ok(span) } else { Err("a span of time is too long") }
    }
}

/// A span as whole nanoseconds, at most 584 years.
impl Form<Duration> for u64 {
    fn of(span: &Duration) -> Self {
        u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
    }

    fn value(self) -> Result<Duration, &'static str> {
        Ok(Duration::from_nanos(self))
    }
}

/// A span where it is not a field.
#[derive(Serialize, Deserialize)]
pub(super) struct Span(#[serde(with = "Seconds")] pub(super) Duration);

/// Bytes in base64.
pub(super) struct Base64(pub(super) Vec<u8>);

/// The headers of an answer: a name in lower case and the bytes of a value that HTTP allows.
impl Form<Vec<(String, Vec<u8>)>> for Vec<(String, Base64)> {
    fn of(headers: &Vec<(String, Vec<u8>)>) -> Self {
        headers.iter().map(|(name, value)| (name.clone(), Base64(value.clone()))).collect()
    }

    fn value(self) -> Result<Vec<(String, Vec<u8>)>, &'static str> {
        let read = self.into_iter().map(|(name, Base64(value))| {
            let is_name = HeaderName::from_lowercase(name.as_bytes()).is_ok();
            let is_header = is_name && HeaderValue::from_bytes(&value).is_ok();
            is_header.then_some((name, value)).ok_or("a header of an answer")
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

/// A map as a list of entries, in which each key stands once.
impl<K: Ord + Clone, V: Clone, E: Form<(K, V)>> Form<BTreeMap<K, V>> for Vec<E> {
    fn of(map: &BTreeMap<K, V>) -> Self {
        map.iter().map(|(key, value)| E::of(&(key.clone(), value.clone()))).collect()
    }

    fn value(self) -> Result<BTreeMap<K, V>, &'static str> {
        let count = self.len();
        let map: BTreeMap<K, V> = self.into_iter().map(E::value).collect::<Result<_, _>>()?;
        if map.len() == count { Ok(map) } else { Err("a list with an entry twice") }
    }
}

impl<K: Clone, V: Clone> Form<(K, V)> for (K, V) {
    fn of(entry: &(K, V)) -> Self {
        entry.clone()
    }

    fn value(self) -> Result<(K, V), &'static str> {
        Ok(self)
    }
}

/// Objects with one member.
macro_rules! objects {
    ($($form:ident $name:ident $about:literal)*) => {
        $(#[doc = $about]
        #[derive(Serialize, Deserialize)]
        pub struct $form<T> {
            pub(super) $name: T,
        }

        impl<T: Clone> Form<T> for $form<T> {
            fn of(value: &T) -> Self {
                Self { $name: value.clone() }
            }

            fn value(self) -> Result<T, &'static str> {
                Ok(self.$name)
            }
        })*
    };
}

objects! {
    Epoch epoch "An epoch, as `{\"epoch\": …}`."
    Id id "An id, as `{\"id\": …}`."
    Number number "A number, as `{\"number\": …}`."
    Page page "A page, as `{\"page\": …}`."
    Region region "A region, as `{\"region\": …}`."
    Status status "A status, as `{\"status\": …}`."
    Why why "A reason, as `{\"why\": …}`."
}

//! Values by number, with the texts that tell them apart, and answers of the protocol's pure
//! functions by question.
//!
//! A state of the model is a few numbers, each of a value of the protocol that was seen before.
//! Numbers differ from run to run, because threads meet values in another order. In each run two
//! numbers are equal exactly if the values' texts are: if they answer the same from now on.
//!
//! Private fields are read from the `Debug` text, so that a new field of a value is in its text,
//! too. It must not leave out anything that can matter. Left out are absolute time, time that has
//! long passed, and numbers that are only ever compared for equality.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use onceway::protocol::digest::{Digest32, digest};
use onceway::protocol::grants::{Admission, GrantWatch};
use onceway::protocol::lease::Lease;
use onceway::protocol::region::RegionName;
use onceway::protocol::register::{Acceptor, Ballot, Grant};
use onceway::protocol::round::Round;
use onceway::protocol::time::Moment;
use onceway::protocol::view::View;

pub struct Pool<T> {
    kept: RwLock<Kept<T>>,
}

struct Kept<T> {
    by_text: BTreeMap<Digest32, u32>,
    values: Vec<Arc<T>>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { kept: RwLock::new(Kept { by_text: BTreeMap::new(), values: Vec::new() }) }
    }
}

impl<T> Pool<T> {
    /// The number of the value that `text` describes completely.
    pub fn id(&self, text: &str, value: impl FnOnce() -> T) -> u32 {
        let text = digest("model/text", &[text.as_bytes()]);
        if let Some(id) = self.kept.read().unwrap_or_else(PoisonError::into_inner).by_text.get(&text) {
            return *id;
        }
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = kept.by_text.get(&text) {
            return *id;
        }
        kept.values.push(Arc::new(value()));
        let id = kept.values.len() as u32;
        kept.by_text.insert(text, id);
        id
    }

    /// The value of that number, which [`Pool::id`] gave.
    pub fn get(&self, id: u32) -> Arc<T> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        kept.values[id as usize - 1].clone()
    }
}

pub struct Memo<K, V> {
    known: RwLock<BTreeMap<K, V>>,
}

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self { known: RwLock::new(BTreeMap::new()) }
    }
}

impl<K: Ord + Copy, V: Clone> Memo<K, V> {
    /// The answer. Asks only if it is not known yet.
    pub fn get(&self, key: K, ask: impl FnOnce() -> V) -> V {
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let answer = ask();
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, answer.clone());
        answer
    }
}

/// The number of a view, by its `Debug` text.
pub type Named<'a> = &'a dyn Fn(&str) -> u32;

/// The present, and the ticks after which a moment is just past: no compared span is longer.
#[derive(Clone, Copy)]
pub struct Past {
    pub now: Moment,
    pub ticks: i64,
}

/// Begins the `Debug` text of a view, before its content.
const VIEW: &str = "View { content: ";

/// A `Debug` text with views by their numbers and moments relative to the present.
fn squeezed(text: &str, past: Past, named: Named<'_>) -> String {
    const MOMENT: &str = "Moment(";
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix(MOMENT) {
            let (digits, after) = tail.split_once(')').unwrap_or((tail, ""));
            let nanos: u64 = digits.parse().unwrap_or_else(|_| panic!("no moment: {digits}"));
            let ahead = nanos as i64 - past.now.as_nanos() as i64;
            out.push_str(&format!("<{}>", ahead.max(-past.ticks)));
            rest = after;
        } else if rest.starts_with(VIEW) {
            let (view, after) = rest.split_at(block(rest));
            out.push_str(&format!("v{}", named(said(view))));
            rest = after;
        } else {
            let next = [rest[1..].find(MOMENT), rest[1..].find(VIEW)].into_iter().flatten().min();
            let (plain, after) = rest.split_at(next.map_or(rest.len(), |next| next + 1));
            out.push_str(plain);
            rest = after;
        }
    }
    out
}

/// The end of the first block in braces.
fn block(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// A lease without the number of the tenure. Only its end matters, and `State::refuse` keeps that.
/// A passed time of quiet, and a last request of an earlier tick, say nothing any more.
pub fn lease(lease: &Lease, past: Past, named: Named<'_>) -> String {
    let text = squeezed(&format!("{lease:?}"), past, named);
    let tenure = format!("{:?}", lease.tenure());
    let mut text = text.replacen(&tenure, "", 1);
    for ago in 0..=past.ticks {
        text = text.replace(&format!("quiet_until: Some(<{}>)", -ago), "quiet_until: None");
        if ago > 0 {
            text = text.replace(&format!("asked: Some(<{}>)", -ago), "asked: None");
        }
    }
    text
}

pub fn round(round: &Round, named: Named<'_>) -> String {
    squeezed(&format!("{round:?}"), Past { now: Moment::default(), ticks: 0 }, named)
}

pub fn view(view: &View) -> String {
    format!("{:?}", view.content())
}

/// The content in the text of a view, without the derived data behind it.
fn said(view: &str) -> &str {
    let content = &view[VIEW.len()..];
    &content[..block(content)]
}

fn ballot(ballot: &Option<Ballot>) -> String {
    ballot
        .as_ref()
        .map_or("-".into(), |ballot| format!("{}.{}.{}", ballot.counter, ballot.region, ballot.proposer))
}

/// An acceptor as its process sees it. The number of a grant is only compared with the seen one.
/// `over_at` says if they are the same, and when the grant is over.
pub fn desk(
    acceptor: &Acceptor,
    watch: &GrantWatch,
    admission: &Admission,
    past: Past,
    named: Named<'_>,
) -> String {
    let Acceptor { id, admitted, promised, accepted, grants } = acceptor;
    let accepted = accepted.as_ref().map_or("-".into(), |accepted| {
        format!("{} v{}", ballot(&Some(accepted.ballot.clone())), named(&view(&accepted.view)))
    });
    let mut text = format!("{id:?} {admitted} {} {accepted}", ballot(promised));
    for (region, grant) in grants {
        text.push_str(&one_grant(region, grant, watch, past.now, named));
    }
    text + &squeezed(&format!("{admission:?}"), past, named)
}

fn one_grant(
    region: &RegionName,
    grant: &Grant,
    watch: &GrantWatch,
    now: Moment,
    named: Named<'_>,
) -> String {
    let Grant { generation, boot, view: under, number: _, ttl, holders: _ } = grant;
    let over = watch.over_at(region, grant).map(|over| now.until(over).as_nanos());
    format!(" {region} {generation} {boot} v{} {ttl:?} {over:?}", named(&view(under)))
}

//! Values by number, and answers of the protocol's pure functions by question.
//!
//! A state of the model is a few numbers, each of a value of the protocol that was seen before.
//! `parts` makes the text of a value. Numbers differ from run to run, because threads meet values
//! in another order. In each run two numbers are equal exactly if the values' texts are.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use onceway::protocol::digest::{Digest32, digest};

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

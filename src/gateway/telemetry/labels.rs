//! Labels of tenants: a bounded number, because tokens of an issuer may name any number of them.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arc_swap::ArcSwap;
use metrics::SharedString;

use crate::protocol::key::Tenant;

/// Tenants that one process labels by name, at most.
const MOST_TENANTS: usize = 1_000;

/// The label that all further tenants share: no tenant can have that name.
pub const OTHER: &str = "(other)";

/// The label of a tenant: its name, or [`OTHER`] beyond the first 1,000 tenants of this process.
pub fn tenant_label(tenant: &Tenant) -> SharedString {
    static LABELS: LazyLock<Labels> = LazyLock::new(|| Labels::new(MOST_TENANTS));
    SharedString::from_shared(LABELS.of(tenant))
}

/// The tenants seen so far, up to a bound. Look-ups take no lock; a new tenant copies the set.
struct Labels {
    seen: ArcSwap<BTreeSet<Arc<str>>>,
    growing: Mutex<()>,
    most: usize,
}

impl Labels {
    fn new(most: usize) -> Self {
        Self { seen: ArcSwap::default(), growing: Mutex::new(()), most }
    }

    /// The tenant's own label, or [`OTHER`] if too many came before it. It keeps its first.
    fn of(&self, tenant: &Tenant) -> Arc<str> {
        let known = |seen: &BTreeSet<Arc<str>>| {
            let full = || (seen.len() >= self.most).then(|| OTHER.into());
            seen.get(tenant.as_str()).cloned().or_else(full)
        };
        if let Some(label) = known(&self.seen.load()) {
            return label;
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = BTreeSet::clone(&self.seen.load());
        if let Some(label) = known(&seen) {
            return label;
        }
        let label: Arc<str> = tenant.as_str().into();
        seen.insert(label.clone());
        self.seen.store(Arc::new(seen));
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_past_the_bound_share_one_label() {
        let labels = Labels::new(2);
        let of = |tenant: &str| labels.of(&Tenant::parse(tenant).unwrap()).to_string();
        assert_eq!([of("a"), of("b"), of("c"), of("d")], ["a", "b", OTHER, OTHER]);
        assert_eq!([of("b"), of("a"), of("c")], ["b", "a", OTHER]);
        assert!(Tenant::parse(OTHER).is_err(), "a tenant of that name would be counted with all others");
    }
}

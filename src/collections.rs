//! The one hash map of the core: keyed per process against crafted keys, repeatable under a seed.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use foldhash::fast::FixedState;

/// Hash map whose order depends on its seed alone.
pub type Map<K, V> = HashMap<K, V, FixedState>;
/// Hash set whose order depends on its seed alone.
pub type Set<K> = HashSet<K, FixedState>;

/// An empty map under `seed`.
#[must_use]
pub fn map<K: Eq + Hash, V>(seed: u64) -> Map<K, V> {
    HashMap::with_hasher(FixedState::with_seed(seed))
}

/// An empty set under `seed`.
#[must_use]
pub fn set<K: Eq + Hash>(seed: u64) -> Set<K> {
    HashSet::with_hasher(FixedState::with_seed(seed))
}

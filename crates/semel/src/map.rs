//! Hash maps for what is looked up many times per step.

/// As the standard one, with a faster hash that is also seeded anew in every process. Its order is no order.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

//! Values in memory: reference-counted, read without a lock, pooled and bounded.

pub(crate) mod cell;
pub(crate) mod entry;
pub(crate) mod value;
pub(crate) mod value_budget;
pub(crate) mod value_pool;

//! The limits of keys, values and names.

/// The longest key in bytes, inclusive: 1 MiB.
pub const KEY_LIMIT: usize = 1 << 20;
/// The longest value in bytes, inclusive: 10 MiB.
pub const VALUE_LIMIT: usize = 10 << 20;
/// The longest name of a keyspace in bytes, inclusive.
pub const NAME_LIMIT: usize = 255;

/// The longest key of a record in bytes. The bound of a range may be one byte longer than a key: it
/// is the key after the longest one.
pub(crate) const RECORD_KEY_LIMIT: usize = KEY_LIMIT + 1;

const _: () = assert!(NAME_LIMIT <= KEY_LIMIT, "a name is a key of the catalog");

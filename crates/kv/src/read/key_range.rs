//! Ranges of keys.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// A range of keys, in the order of their bytes.
///
/// Every range of anything that is bytes converts to it: `..`, `"a".."n"`, `key.to_vec()..`,
/// `..="z"`, and a pair of [`Bound`]s. So methods that take `impl Into<KeyRange>` take those.
///
/// # Examples
/// ```
/// use std::ops::Bound;
/// use esker_kv::KeyRange;
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = esker_kv::Store::open(dir.path().join("store"))?;
/// let keys = store.keyspace();
/// for key in ["a", "b", "c"] {
///     let _ = keys.put(key, key)?;
/// }
/// assert_eq!(keys.scan(..)?.count(), 3);
/// assert_eq!(keys.scan("a".."c")?.count(), 2);
/// assert_eq!(keys.scan(b"b".to_vec()..)?.count(), 2);
/// assert_eq!(keys.scan((Bound::Excluded("a"), Bound::Unbounded))?.count(), 2);
/// let _ = keys.delete_range(KeyRange::prefix("b"))?;
/// assert_eq!(keys.scan(..="c")?.count(), 2);
/// # Ok::<(), esker_kv::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The lowest key.
    pub(super) low: Vec<u8>,
    /// All keys are below this one.
    pub(super) high: Option<Vec<u8>>,
}

impl KeyRange {
    /// Returns the keys between two bounds, of any type that has them.
    pub fn new<K: AsRef<[u8]> + ?Sized>(range: impl RangeBounds<K>) -> Self {
        let after = |key: &K| {
            let mut key = key.as_ref().to_vec();
            key.push(0);
            key
        };
        Self {
            low: match range.start_bound() {
                Bound::Included(key) => key.as_ref().to_vec(),
                Bound::Excluded(key) => after(key),
                Bound::Unbounded => Vec::new(),
            },
            high: match range.end_bound() {
                Bound::Included(key) => Some(after(key)),
                Bound::Excluded(key) => Some(key.as_ref().to_vec()),
                Bound::Unbounded => None,
            },
        }
    }

    /// Returns the keys that begin with a prefix.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        let mut high = prefix.to_vec();
        while high.last() == Some(&u8::MAX) {
            high.pop();
        }
        let high = high.pop().map(|last| {
            high.push(last + 1);
            high
        });
        Self { low: prefix.to_vec(), high }
    }

    pub(crate) fn low(&self) -> &[u8] {
        &self.low
    }

    pub(crate) fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }
}

impl From<RangeFull> for KeyRange {
    fn from(range: RangeFull) -> Self {
        Self::new::<[u8]>(range)
    }
}

macro_rules! from_ranges {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> From<$range> for KeyRange {
            fn from(range: $range) -> Self {
                Self::new(range)
            }
        }
    )*};
}

from_ranges!(
    Range<K>,
    RangeFrom<K>,
    RangeTo<K>,
    RangeInclusive<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

#[cfg(test)]
mod tests {
    use super::*;

    fn range(low: &[u8], high: Option<&[u8]>) -> KeyRange {
        KeyRange { low: low.into(), high: high.map(Into::into) }
    }

    #[test]
    fn every_form_of_a_range_converts_without_annotation() {
        fn convert(range: impl Into<KeyRange>) -> KeyRange {
            range.into()
        }
        let (from, below) = (&b"b"[..], Some(&b"d"[..]));
        assert_eq!(convert(..), range(b"", None));
        assert_eq!(convert("b".."d"), range(from, below));
        assert_eq!(convert(b"b"..b"d"), range(from, below));
        assert_eq!(convert("b".to_owned().."d".to_owned()), range(from, below));
        assert_eq!(convert(from..&b"d"[..]), range(from, below));
        assert_eq!(convert(b"b".to_vec()..), range(from, None));
        assert_eq!(convert(.."d"), range(b"", below));
        assert_eq!(convert("b"..="d"), range(from, Some(b"d\0")));
        assert_eq!(convert(..="d"), range(b"", Some(b"d\0")));
        assert_eq!(convert((Bound::Excluded("b"), Bound::Unbounded)), range(b"b\0", None));
        assert_eq!(convert((Bound::Unbounded, Bound::Included("d"))), range(b"", Some(b"d\0")));
        assert_eq!(convert(bytes::Bytes::from_static(b"b")..), range(from, None));
        // A type that has bounds, and no conversion of its own.
        assert_eq!(
            KeyRange::new::<[u8]>((Bound::Included(from), Bound::Unbounded)),
            convert("b"..)
        );
    }

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(KeyRange::prefix("ab"), range(b"ab", Some(b"ac")));
        assert_eq!(KeyRange::prefix(b"a\xff"), range(b"a\xff", Some(b"b")));
        assert_eq!(KeyRange::prefix(b"\xff\xff"), range(b"\xff\xff", None));
        assert_eq!(KeyRange::prefix(""), range(b"", None));
    }
}

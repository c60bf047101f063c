//! The records of a store in its log. Numbers are little-endian. The log's own checksum covers the
//! whole record, and its length gives the length of the last field.
//!
//! ```text
//! 0      1               4           8         8+key_len
//! | kind | key_len (u24) | keyspace  | key ... | value ...
//! ```
//!
//! | kind | record | last field |
//! |---|---|---|
//! | 1 | put | the value |
//! | 2 | delete | none |
//! | 3 | delete of a range, from `key` on | its end, excluded |
//! | 4 | delete of a range, from `key` on, without end | none |
//! | 129 | put, copied by cleaning | the value |
//!
//! Keyspace 0 is the catalog: each of its keys is the name of a keyspace, and its value the
//! keyspace's number, as a u32. The empty key has the next number. Keyspace 1 is the default one,
//! and is not in the catalog. A number is never used again.

use crate::limits::{KEY_LIMIT, RECORD_KEY_LIMIT, VALUE_LIMIT};

/// The bytes before the key.
pub(crate) const HEADER_BYTES: usize = 8;
/// The most bytes of a record.
pub(crate) const RECORD_BYTES_MAX: usize = HEADER_BYTES + KEY_LIMIT + VALUE_LIMIT;

const _: () = assert!(RECORD_KEY_LIMIT < 1 << 24, "the length of a key fits into its field");
const _: () = assert!(RECORD_BYTES_MAX <= u32::MAX as usize, "a record's length is a u32");
const _: () = assert!(2 * RECORD_KEY_LIMIT <= KEY_LIMIT + VALUE_LIMIT, "two bounds fit a record");
const _: () = assert!(KIND_DELETE_FROM < MOVED_FLAG, "a kind leaves its highest bit for a copy");

const KIND_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_DELETE_RANGE: u8 = 3;
const KIND_DELETE_FROM: u8 = 4;
/// The flag in the kind of a record that cleaning copied.
const MOVED_FLAG: u8 = 0x80;

/// A record of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// The change that a record makes to its key, or to the keys from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put {
        value: &'a [u8],
        moved: bool,
    },
    Delete,
    /// Deletes the keys up to the end, which is excluded, or up to the last key.
    DeleteRange {
        end: Option<&'a [u8]>,
    },
}

impl<'a> Record<'a> {
    /// Appends the record's bytes. Key, value and end are within their limits.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let Self { keyspace, key, change } = self;
        let start = out.len();
        let (kind, rest): (u8, &[u8]) = match change {
            Change::Put { value, moved: false } => (KIND_PUT, value),
            Change::Put { value, moved: true } => (KIND_PUT | MOVED_FLAG, value),
            Change::Delete => (KIND_DELETE, &[]),
            Change::DeleteRange { end: Some(end) } => (KIND_DELETE_RANGE, end),
            Change::DeleteRange { end: None } => (KIND_DELETE_FROM, &[]),
        };
        debug_assert!(key.len() <= RECORD_KEY_LIMIT, "the key of a record is within its limit");
        out.reserve(HEADER_BYTES + key.len() + rest.len());
        out.extend_from_slice(&(u32::from(kind) | (key.len() as u32) << 8).to_le_bytes());
        out.extend_from_slice(&keyspace.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(rest);
        debug_assert_eq!(
            Record::decode(&out[start..]),
            Ok(self),
            "a record is read back as written"
        );
    }

    /// Decodes a record. The error is the rule of the format that the bytes break.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, &'static str> {
        let Some((header, body)) = payload.split_first_chunk::<HEADER_BYTES>() else {
            return Err("it is too short");
        };
        let [k0, k1, k2, k3, s0, s1, s2, s3] = *header;
        let key_len = u32::from_le_bytes([k1, k2, k3, 0]) as usize;
        let keyspace = u32::from_le_bytes([s0, s1, s2, s3]);
        let Some((key, rest)) = body.split_at_checked(key_len) else {
            return Err("its key exceeds the record");
        };
        let change = match k0 {
            KIND_PUT => Change::Put { value: rest, moved: false },
            kind if kind == KIND_PUT | MOVED_FLAG => Change::Put { value: rest, moved: true },
            KIND_DELETE if rest.is_empty() => Change::Delete,
            KIND_DELETE_RANGE => Change::DeleteRange { end: Some(rest) },
            KIND_DELETE_FROM if rest.is_empty() => Change::DeleteRange { end: None },
            KIND_DELETE | KIND_DELETE_FROM => return Err("bytes follow its key"),
            _ => return Err("its kind is unknown"),
        };
        change.check()?;
        // Only the bounds of a range may be one byte longer.
        let limit = match change {
            Change::DeleteRange { .. } => RECORD_KEY_LIMIT,
            _ => KEY_LIMIT,
        };
        if key.len() > limit {
            return Err("its key is too long");
        }
        Ok(Self { keyspace, key, change })
    }
}

impl Change<'_> {
    /// Checks the length of the last field.
    fn check(self) -> Result<(), &'static str> {
        match self {
            Self::Put { value, .. } if value.len() > VALUE_LIMIT => Err("its value is too long"),
            Self::DeleteRange { end: Some(end) } if end.len() > RECORD_KEY_LIMIT => {
                Err("the end of its range is too long")
            }
            _ => Ok(()),
        }
    }
}

/// The length of the payload of a put.
pub(crate) fn put_len(key: usize, value: usize) -> u32 {
    debug_assert!(
        key <= KEY_LIMIT && value <= VALUE_LIMIT,
        "key and value are within their limits"
    );
    (HEADER_BYTES + key + value) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let changes = [
            Change::Put { value: b"value", moved: false },
            Change::Put { value: b"", moved: true },
            Change::Delete,
            Change::DeleteRange { end: Some(b"z") },
            Change::DeleteRange { end: Some(b"") },
            Change::DeleteRange { end: None },
        ];
        for change in changes {
            for key in [&b""[..], b"key", &[0xff; 300]] {
                let record = Record { keyspace: 7, key, change };
                let mut bytes = Vec::new();
                record.encode(&mut bytes);
                assert_eq!(Record::decode(&bytes), Ok(record));
            }
        }
    }

    /// The format on disk must not change.
    #[test]
    fn the_bytes_of_each_kind() {
        let put = |moved| Change::Put { value: b"V", moved };
        for (change, expected) in [
            (put(false), &b"\x01\x03\0\0\x0d\x0c\x0b\x0akeyV"[..]),
            (put(true), b"\x81\x03\0\0\x0d\x0c\x0b\x0akeyV"),
            (Change::Delete, b"\x02\x03\0\0\x0d\x0c\x0b\x0akey"),
            (Change::DeleteRange { end: Some(b"z") }, b"\x03\x03\0\0\x0d\x0c\x0b\x0akeyz"),
            (Change::DeleteRange { end: None }, b"\x04\x03\0\0\x0d\x0c\x0b\x0akey"),
        ] {
            let mut bytes = Vec::new();
            Record { keyspace: 0x0a0b_0c0d, key: b"key", change }.encode(&mut bytes);
            assert_eq!(bytes, expected, "{change:?}");
        }
    }

    /// They are read back: a limit that encoding does not check would make a store unreadable.
    #[test]
    fn fields_beyond_their_limits_are_refused() {
        let long = vec![0; VALUE_LIMIT + 1];
        let (key, value) = (&long[..RECORD_KEY_LIMIT], &long[..VALUE_LIMIT]);
        for (kind, key, rest, is_valid) in [
            (KIND_PUT, &b""[..], value, true),
            (KIND_PUT | MOVED_FLAG, b"", &long[..], false),
            (KIND_DELETE_RANGE, key, key, true),
            (KIND_DELETE_RANGE, b"", &long[..=RECORD_KEY_LIMIT], false),
            (KIND_DELETE, &long[..=RECORD_KEY_LIMIT], b"", false),
        ] {
            let header = (u32::from(kind) | (key.len() as u32) << 8).to_le_bytes();
            let bytes = [&header[..], &[0; 4], key, rest].concat();
            assert_eq!(Record::decode(&bytes).is_ok(), is_valid, "{kind} {}", bytes.len());
        }
    }

    #[test]
    fn invalid_records_are_refused() {
        for bytes in [
            &b""[..],
            b"\x01\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0",
            b"\x05\0\0\0\0\0\0\0",
            b"\x82\0\0\0\0\0\0\0",
            b"\x01\x01\0\0\0\0\0\0",
            b"\x02\0\0\0\0\0\0\0x",
            b"\x04\0\0\0\0\0\0\0x",
        ] {
            assert!(Record::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}

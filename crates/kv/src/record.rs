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

/// Bytes before the key.
pub(crate) const HEADER_BYTES: usize = 8;

const KIND_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_DELETE_RANGE: u8 = 3;
const KIND_DELETE_FROM: u8 = 4;
/// Set in the kind of a record that cleaning copied.
const MOVED_FLAG: u8 = 0x80;

/// A record of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// What a record does to its key, or to the keys from there on.
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
    /// Appends the record's bytes. The key is within its limit.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let Self { keyspace, key, change } = self;
        let (kind, rest): (u8, &[u8]) = match change {
            Change::Put { value, moved: false } => (KIND_PUT, value),
            Change::Put { value, moved: true } => (KIND_PUT | MOVED_FLAG, value),
            Change::Delete => (KIND_DELETE, &[]),
            Change::DeleteRange { end: Some(end) } => (KIND_DELETE_RANGE, end),
            Change::DeleteRange { end: None } => (KIND_DELETE_FROM, &[]),
        };
        debug_assert!(key.len() < 1 << 24);
        out.reserve(HEADER_BYTES + key.len() + rest.len());
        out.extend_from_slice(&(u32::from(kind) | (key.len() as u32) << 8).to_le_bytes());
        out.extend_from_slice(&keyspace.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(rest);
    }

    /// Decodes a record; otherwise says what is wrong with it.
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
        Ok(Self { keyspace, key, change })
    }
}

/// The length of the payload of a put.
pub(crate) fn put_len(key: usize, value: usize) -> u32 {
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

//! The directory of a key's log: the first 20 bytes of the key's SHA-256 in hexadecimal.
//!
//! So any key has a name that every file system takes, in every case-insensitive one too. The key
//! itself is the label of the log, which opening compares: two keys with one name would be an
//! error, never one log.

use esker_log::ReadOptions;
use sha2::{Digest, Sha256};

use crate::component;
use crate::durability::metadata::Metadata;
use crate::storage_error::StorageError;

/// The directory of the registry.
pub(super) const REGISTRY_DIR: &str = "registry";
/// Bytes of the digest in a name.
const DIGEST_BYTES: usize = 20;

pub(super) fn directory_of(key: &[u8]) -> String {
    let digest = Sha256::digest(key);
    digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a directory of this name holds the log of a key.
pub(super) fn is_log(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.len() == 2 * DIGEST_BYTES && name.bytes().all(is_digit)
}

/// The key that the log in the directory of this name has as its label, which may be another than
/// the one that the name is of: then the directory was put in the place of that one.
pub(super) fn label_of(name: &str, options: &ReadOptions) -> Result<Option<Vec<u8>>, StorageError> {
    let metadata = component::app_metadata(name.as_ref(), options)?;
    let label = metadata.map(|bytes| Metadata::decode(&bytes).label);
    // Without a label it may be the log of the empty key.
    Ok(label.filter(|label| !label.is_empty() || directory_of(label) == name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn odd_keys_have_safe_names_of_their_own() {
        let long = [b'k'; 1000];
        let odd: [&[u8]; 12] = [
            b"",
            b"a",
            b"A",
            b"a/b",
            b"../a",
            b"\0",
            b"a\0b",
            "ключ/\u{1F511}".as_bytes(),
            &long,
            &long[1..],
            b"registry",
            &[0xff; 4],
        ];
        let names: BTreeSet<String> = odd.iter().map(|key| directory_of(key)).collect();
        assert_eq!(names.len(), odd.len());
        assert!(names.iter().all(|name| is_log(name) && name.len() <= 255));
        assert!(
            !is_log(REGISTRY_DIR) && !is_log("") && !is_log(&directory_of(b"a").to_uppercase())
        );
        // The name never changes: it is where the log is.
        assert_eq!(directory_of(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a3");
    }
}

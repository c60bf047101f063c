//! Mutations that corrupt a directory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::files::Files;

/// A mutation of a directory. It refers to files and bytes as they were before any mutation, so
/// leaving out one of several does not change the others. Files that no longer exist, and bytes
/// past the end of a file, are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mutation {
    /// A bit is flipped, counted from the start of the file.
    Flip {
        /// The file.
        file: String,
        /// The bit.
        bit: u64,
    },
    /// Bytes are replaced.
    Overwrite {
        /// The file.
        file: String,
        /// The first byte.
        offset: usize,
        /// The new bytes.
        bytes: Vec<u8>,
        /// A description of the bytes.
        what: String,
    },
    /// Two ranges of equal length are exchanged.
    Swap {
        /// The file.
        file: String,
        /// The starts of the ranges.
        starts: (usize, usize),
        /// The length of the ranges.
        len: usize,
    },
    /// The file is truncated.
    Cut {
        /// The file.
        file: String,
        /// The new length of the file.
        len: usize,
    },
    /// Bytes are appended to the file.
    Extend {
        /// The file.
        file: String,
        /// The appended bytes.
        bytes: Vec<u8>,
    },
    /// The file is deleted.
    Delete {
        /// The file.
        file: String,
    },
    /// The names of two files are exchanged.
    Exchange {
        /// One.
        one: String,
        /// The other.
        other: String,
    },
    /// The file is renamed, replacing a file of the new name.
    Rename {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// A file has this content, whether it existed before or not.
    Put {
        /// The file.
        file: String,
        /// The content.
        bytes: Arc<Vec<u8>>,
        /// A description of the content.
        what: String,
    },
}

impl Mutation {
    /// Applies the mutation to the files.
    pub fn apply(&self, files: &mut Files) {
        match self {
            Self::Flip { file, bit } => edit(files, file, |bytes| {
                if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                    *byte ^= 1 << (bit % 8);
                }
            }),
            Self::Overwrite { file, offset, bytes: new, .. } => edit(files, file, |bytes| {
                let room = bytes.len().saturating_sub(*offset).min(new.len());
                if room > 0 {
                    bytes[*offset..offset + room].copy_from_slice(&new[..room]);
                }
            }),
            Self::Swap { file, starts: (one, other), len } => edit(files, file, |bytes| {
                for at in 0..*len {
                    if one.max(other) + at < bytes.len() {
                        bytes.swap(one + at, other + at);
                    }
                }
            }),
            Self::Cut { file, len } => edit(files, file, |bytes| bytes.truncate(*len)),
            Self::Extend { file, bytes: more } => {
                edit(files, file, |bytes| bytes.extend_from_slice(more));
            }
            Self::Delete { file } => drop(files.remove(file)),
            Self::Exchange { one, other } => {
                if let (Some(first), Some(second)) =
                    (files.get(one).cloned(), files.get(other).cloned())
                {
                    files.insert(one.clone(), second);
                    files.insert(other.clone(), first);
                }
            }
            Self::Rename { from, to } => {
                if let Some(bytes) = files.remove(from) {
                    files.insert(to.clone(), bytes);
                }
            }
            Self::Put { file, bytes, .. } => drop(files.insert(file.clone(), Arc::clone(bytes))),
        }
    }
}

fn edit(files: &mut Files, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    if let Some(bytes) = files.get_mut(file) {
        change(Arc::make_mut(bytes));
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |start: usize, len: usize| -> Range<usize> { start..start + len };
        match self {
            Self::Flip { file, bit } => {
                write!(f, "flip bit {} of byte {} of {file}", bit % 8, bit / 8)
            }
            Self::Overwrite { file, offset, bytes, what } => {
                write!(f, "bytes {:?} of {file} become {what}", range(*offset, bytes.len()))
            }
            Self::Swap { file, starts, len } => {
                let (one, other) = (range(starts.0, *len), range(starts.1, *len));
                write!(f, "bytes {one:?} and {other:?} of {file} change places")
            }
            Self::Cut { file, len } => write!(f, "{file} is cut to {len} bytes"),
            Self::Extend { file, bytes } => write!(f, "{file} gets {} more bytes", bytes.len()),
            Self::Delete { file } => write!(f, "{file} is deleted"),
            Self::Exchange { one, other } => write!(f, "{one} and {other} change names"),
            Self::Rename { from, to } => write!(f, "{from} is renamed to {to}"),
            Self::Put { file, bytes, what } => {
                write!(f, "{file} becomes {what} ({} bytes)", bytes.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_passes_over_what_is_not_there() {
        let gone = || "gone".to_owned();
        let all = [
            Mutation::Flip { file: gone(), bit: 9 },
            Mutation::Overwrite { file: gone(), offset: 3, bytes: vec![1], what: gone() },
            Mutation::Swap { file: gone(), starts: (0, 1), len: 1 },
            Mutation::Cut { file: gone(), len: 1 },
            Mutation::Extend { file: gone(), bytes: vec![1] },
            Mutation::Delete { file: gone() },
            Mutation::Exchange { one: gone(), other: "a".into() },
            Mutation::Rename { from: gone(), to: "a".into() },
            Mutation::Flip { file: "a".into(), bit: 1 << 40 },
            Mutation::Overwrite { file: "a".into(), offset: 99, bytes: vec![1], what: gone() },
            Mutation::Swap { file: "a".into(), starts: (0, 99), len: 8 },
        ];
        let before = Files::from([("a".to_owned(), Arc::new(vec![1, 2, 3]))]);
        for mutation in all {
            let mut files = before.clone();
            mutation.apply(&mut files);
            assert_eq!(files, before, "{mutation}");
        }
    }

    #[test]
    fn bytes_past_the_end_are_left_out() {
        let mut files = Files::from([("a".to_owned(), Arc::new(vec![1, 2, 3]))]);
        let bytes = vec![7; 9];
        Mutation::Overwrite { file: "a".into(), offset: 2, bytes, what: String::new() }
            .apply(&mut files);
        assert_eq!(*files["a"], [1, 2, 7]);
    }
}

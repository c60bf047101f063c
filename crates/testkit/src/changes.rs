//! The blocks of a directory that differ between states, and the step that wrote each block.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::files::Files;

/// The unit of change, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// The blocks in which two states of a directory differ.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    blocks: BTreeMap<String, BTreeSet<usize>>,
    /// The block from which on the whole file differs.
    tails: BTreeMap<String, usize>,
}

impl Changes {
    /// Compares two states.
    pub fn between(before: &Files, after: &Files) -> Self {
        let mut changes = Self::default();
        for (name, old) in before {
            let Some(new) = after.get(name) else {
                changes.tails.insert(name.clone(), 0);
                continue;
            };
            if Arc::ptr_eq(old, new) {
                continue;
            }
            if old.len() != new.len() {
                changes.tails.insert(name.clone(), old.len().min(new.len()) / BLOCK_BYTES);
            }
            let pairs = old.chunks(BLOCK_BYTES).zip(new.chunks(BLOCK_BYTES)).enumerate();
            let differ = pairs.filter(|(_, (old, new))| old != new).map(|(at, _)| at);
            changes.blocks.insert(name.clone(), differ.collect());
        }
        for name in after.keys().filter(|name| !before.contains_key(*name)) {
            changes.tails.insert(name.clone(), 0);
        }
        changes
    }

    /// Returns whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.tails.is_empty() && self.blocks.values().all(BTreeSet::is_empty)
    }

    /// Returns whether any block of this file differs.
    pub fn touches_file(&self, file: &str) -> bool {
        self.touches(file, &(0..usize::MAX))
    }

    /// Returns whether one of these blocks differs.
    pub fn touches(&self, file: &str, blocks: &Range<usize>) -> bool {
        self.tails.get(file).is_some_and(|from| *from < blocks.end)
            || self.blocks.get(file).is_some_and(|set| set.range(blocks.clone()).next().is_some())
    }

    /// Returns whether the directory now belongs to another log, or cannot be distinguished from
    /// one. A segment of the other log is present, and no segment header of this one. The manifest
    /// is the other log's, or it is lost and no file of `named` is left, which name the log, too.
    pub fn are_of_another(
        &self,
        damaged: &Files,
        other: &Files,
        manifest: &str,
        named: &[&str],
    ) -> bool {
        let is_other = |bytes: &Arc<Vec<u8>>| other.values().any(|other| other == bytes);
        let segments = || damaged.iter().filter(|(name, _)| name.ends_with(".seg"));
        // A file of zeros names no log.
        let says = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        let names_log = |name: &&str| {
            !self.touches_file(name) && damaged.get(*name).is_some_and(|bytes| says(bytes))
        };
        self.touches_file(manifest)
            && segments().any(|(_, bytes)| is_other(bytes))
            && segments().all(|(name, bytes)| {
                self.touches(name, &(0..1)) || !says(&bytes[..BLOCK_BYTES.min(bytes.len())])
            })
            && (damaged.get(manifest) == other.get(manifest) || !named.iter().any(names_log))
    }
}

/// Adjacent blocks of a file that the same step wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub file: String,
    /// The blocks.
    pub blocks: Range<usize>,
    content: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks {:?}", self.file, self.blocks)
    }
}

impl Written {
    /// Records the blocks with their current content.
    pub fn record(files: &Files, file: &str, blocks: Range<usize>) -> Self {
        let content = hash(slice(files, file, &blocks).unwrap_or_default());
        Self { file: file.into(), blocks, content }
    }

    /// Returns whether the blocks still hold what was written.
    pub fn is_in(&self, files: &Files) -> bool {
        slice(files, &self.file, &self.blocks).is_some_and(|bytes| hash(bytes) == self.content)
    }
}

fn slice<'a>(files: &'a Files, file: &str, blocks: &Range<usize>) -> Option<&'a [u8]> {
    let bytes = files.get(file)?;
    let end = blocks.end.checked_mul(BLOCK_BYTES)?.min(bytes.len());
    bytes.get(blocks.start * BLOCK_BYTES..end)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Tracks a directory from step to step, and reports what each step wrote. A block counts once,
/// where its content was first seen: renaming or reusing a file is not a write.
#[derive(Debug, Clone, Default)]
pub struct Lasting {
    seen: HashSet<u64>,
    before: Files,
}

impl Lasting {
    /// Returns the runs of blocks written since the last call.
    pub fn step(&mut self, files: &Files) -> Vec<Written> {
        let mut written = Vec::new();
        for (name, bytes) in files {
            if self.before.get(name).is_some_and(|old| old == bytes) {
                continue;
            }
            let old = self.before.get(name);
            let mut run: Option<Range<usize>> = None;
            for (at, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
                let same = old
                    .and_then(|old| old.chunks(BLOCK_BYTES).nth(at))
                    .is_some_and(|old| old == block);
                let new = !same && block.iter().any(|byte| *byte != 0);
                if new && self.seen.insert(hash(block)) {
                    run = Some(run.map_or(at, |run| run.start)..at + 1);
                } else if let Some(run) = run.take() {
                    written.push(Written::record(files, name, run));
                }
            }
            written.extend(run.map(|run| Written::record(files, name, run)));
        }
        self.before.clone_from(files);
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(of: &[(&str, Vec<u8>)]) -> Files {
        of.iter().map(|(name, bytes)| ((*name).to_owned(), Arc::new(bytes.clone()))).collect()
    }

    #[test]
    fn changes_are_found_by_block() {
        let before = files(&[("a", vec![1; 3 * BLOCK_BYTES]), ("b", vec![2; 10])]);
        let mut changed = vec![1; 3 * BLOCK_BYTES];
        changed[BLOCK_BYTES + 7] = 9;
        let changes = Changes::between(&before, &files(&[("a", changed), ("c", vec![])]));
        let touched: Vec<_> = (0..3).map(|at| changes.touches("a", &(at..at + 1))).collect();
        assert_eq!(touched, [false, true, false]);
        assert!(changes.touches_file("b") && changes.touches_file("c"));
        assert!(Changes::between(&before, &before).is_empty());
    }

    #[test]
    fn a_file_that_is_cut_differs_from_there_on() {
        let before = files(&[("a", vec![1; 3 * BLOCK_BYTES])]);
        let changes = Changes::between(&before, &files(&[("a", vec![1; BLOCK_BYTES + 5])]));
        assert!(!changes.touches("a", &(0..1)) && changes.touches("a", &(1..2)));
        assert!(changes.touches("a", &(2..3)));
    }

    #[test]
    fn a_directory_is_another_only_if_nothing_names_the_log() {
        let block = |byte| vec![byte; BLOCK_BYTES];
        let log = [("manifest", block(1)), ("page", block(2)), ("1.seg", block(3))];
        // A preallocated segment names no log.
        let log = files(&[&log[..], &[("2.seg", vec![0; 2 * BLOCK_BYTES])]].concat());
        let other = files(&[("manifest", block(4)), ("1.seg", block(5)), ("reserve", block(9))]);
        let is_another = |damages: &[(&str, Vec<u8>)]| {
            let mut damaged = log.clone();
            damaged.extend(files(damages));
            let changes = Changes::between(&log, &damaged);
            changes.are_of_another(&damaged, &other, "manifest", &["page"])
        };
        let (segment, manifest) = (("1.seg", block(5)), ("manifest", block(4)));
        let (lost, no_page) = (("manifest", block(9)), ("page", block(0)));
        assert!(is_another(&[segment.clone(), manifest.clone()]));
        assert!(is_another(&[segment.clone(), lost.clone(), no_page.clone()]));
        // The page, the manifest or a segment still names the log, or no segment is the other's.
        assert!(!is_another(&[segment.clone(), lost.clone()]));
        assert!(!is_another(&[segment.clone(), no_page.clone()]));
        assert!(!is_another(&[manifest, no_page.clone()]));
        assert!(!is_another(&[("3.seg", block(5)), lost.clone(), no_page.clone()]));
        assert!(!is_another(&[("1.seg", block(8)), lost, no_page]));
    }

    #[test]
    fn a_step_wrote_what_was_never_seen() {
        let mut lasting = Lasting::default();
        let first = files(&[(
            "a",
            [vec![1; BLOCK_BYTES], vec![0; BLOCK_BYTES], vec![2; 2 * BLOCK_BYTES]].concat(),
        )]);
        let runs = lasting.step(&first);
        // The two equal blocks have the same content and count once.
        let blocks: Vec<_> = runs.iter().map(|run| run.blocks.clone()).collect();
        assert_eq!(blocks, [0..1, 2..3]);
        let renamed = files(&[(
            "b",
            [vec![3; BLOCK_BYTES], vec![0; BLOCK_BYTES], vec![2; BLOCK_BYTES]].concat(),
        )]);
        let runs = lasting.step(&renamed);
        assert_eq!(runs.len(), 1);
        assert!(runs[0].is_in(&renamed) && !runs[0].is_in(&first));
    }
}

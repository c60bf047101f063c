//! The files of the tree, held in memory, so that rules need no disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use walkdir::{DirEntry, WalkDir};

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 7] =
    [".git", "target", "node_modules", "corpus", "artifacts", "esker-data", "proptest-regressions"];
/// The rendered book.
const BOOK: &str = "docs/book";
/// Larger files are data: they are known by name alone.
const TEXT_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    /// Every file and folder, text or not.
    names: BTreeSet<String>,
}

impl Tree {
    pub fn read(root: &Path) -> Result<Self> {
        let name_of = |entry: &DirEntry| {
            entry.path().strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned)
        };
        let kept = |entry: &DirEntry| {
            let skipped = entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name));
            let folder = entry.file_type().is_dir();
            !(folder && (skipped || name_of(entry).as_deref() == Some(BOOK)))
        };
        let mut tree = Self::default();
        for entry in WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(kept) {
            let entry = entry?;
            let Some(name) = name_of(&entry).filter(|name| !name.is_empty()) else { continue };
            if entry.file_type().is_file()
                && entry.metadata()?.len() <= TEXT_BYTES_MAX
                && let Ok(text) = String::from_utf8(std::fs::read(entry.path())?)
            {
                tree.texts.insert(name.clone(), text);
            }
            tree.names.insert(name);
        }
        Ok(tree)
    }

    /// Creates a tree of these files.
    #[cfg(test)]
    pub fn from_files(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.texts.insert((*path).to_owned(), (*text).to_owned());
            let mut name = *path;
            tree.names.insert(name.to_owned());
            while let Some((folder, _)) = name.rsplit_once('/') {
                tree.names.insert(folder.to_owned());
                name = folder;
            }
        }
        tree
    }

    /// Paths from the root, and texts, in order.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether `path` is a file or a folder of the tree.
    pub fn has(&self, path: &str) -> bool {
        self.names.contains(path)
    }

    /// The names of the folders in `crates/`.
    pub fn crates(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter_map(|name| {
            let folder = name.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!folder.contains('/')).then_some(folder)
        })
    }

    /// The names of the folders in `clients/`.
    pub fn clients(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().filter_map(|name| name.strip_prefix("clients/"));
        names.filter(|name| !name.contains(['/', '.']))
    }
}

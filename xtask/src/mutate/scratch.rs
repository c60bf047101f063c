//! The copy of the tree that mutations are applied in.
//!
//! Cargo decides by modification times what to build again. So a file of the copy is written only
//! when its content differs, and keeps its time otherwise: a mutation costs the rebuild of one
//! crate and of those that depend on it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use walkdir::WalkDir;

use crate::mutations::Mutation;

pub struct Scratch {
    source: PathBuf,
    target: PathBuf,
}

impl Scratch {
    /// Copies what git knows or would know (tracked, and untracked without the ignored) of `root`
    /// to `target/mutate/src`.
    pub fn copy_of(root: &Path) -> Result<Self> {
        let place = root.join("target/mutate");
        let scratch = Self { source: place.join("src"), target: place.join("target") };
        mirror(root, &listed(root)?, &scratch.source)?;
        Ok(scratch)
    }

    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The build directory, kept between runs.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Applies `mutation` of the list in `folder`; dropping the answer takes it out again.
    pub fn mutate(&self, folder: &str, mutation: &Mutation) -> Result<AppliedMutation> {
        let path = self.source.join(folder).join(&mutation.file);
        let sound =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", mutation.file))?;
        let applied = mutation.applied_to(&sound)?;
        fs::write(&path, applied)?;
        Ok(AppliedMutation { path, sound })
    }
}

/// A mutation in its place.
pub struct AppliedMutation {
    path: PathBuf,
    sound: String,
}

impl Drop for AppliedMutation {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.sound) {
            eprintln!("mutate: cannot restore {}: {error}", self.path.display());
        }
    }
}

fn listed(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        // A file that was removed but is still tracked, and a folder that is its own repository.
        .filter(|name| root.join(name).is_file())
        .collect())
}

/// Makes `to` hold exactly `files`, touching only what differs.
fn mirror(from: &Path, files: &BTreeSet<PathBuf>, to: &Path) -> Result<()> {
    for name in files {
        let wanted =
            fs::read(from.join(name)).with_context(|| format!("cannot read {}", name.display()))?;
        let copy = to.join(name);
        if fs::read(&copy).is_ok_and(|there| there == wanted) {
            continue;
        }
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&copy, wanted).with_context(|| format!("cannot write {}", copy.display()))?;
    }
    for entry in WalkDir::new(to) {
        let entry = entry?;
        let name = entry.path().strip_prefix(to)?;
        // Cargo.lock is cargo's to write where the tree has none.
        if entry.file_type().is_file() && !files.contains(name) && name != Path::new("Cargo.lock") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn mirrors_and_touches_only_what_differs() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        fs::create_dir(from.path().join("a")).unwrap();
        fs::write(from.path().join("a/same"), "1").unwrap();
        fs::write(from.path().join("changed"), "1").unwrap();
        mirror(from.path(), &names(&["a/same", "changed"]), to.path()).unwrap();
        let before = fs::metadata(to.path().join("a/same")).unwrap().modified().unwrap();

        fs::write(from.path().join("changed"), "2").unwrap();
        fs::write(to.path().join("stray"), "").unwrap();
        mirror(from.path(), &names(&["a/same", "changed"]), to.path()).unwrap();
        let after = fs::metadata(to.path().join("a/same")).unwrap().modified().unwrap();
        assert_eq!(before, after);
        assert_eq!(fs::read(to.path().join("changed")).unwrap(), b"2");
        assert!(!to.path().join("stray").exists());
    }

    #[test]
    fn a_mutation_goes_when_its_trial_ends() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("log")).unwrap();
        let file = place.path().join("log/x.rs");
        fs::write(&file, "sync();").unwrap();
        let scratch =
            Scratch { source: place.path().to_path_buf(), target: place.path().join("target") };
        let mutations = crate::mutations::parse(
            "[a]\nfile='x.rs'\nold='sync();'\nnew=''\ntest='tests/b.rs::c'\n",
        );
        let applied = scratch.mutate("log", &mutations.unwrap()["a"]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
        drop(applied);
        assert_eq!(fs::read_to_string(&file).unwrap(), "sync();");
    }
}

//! The release that is packed: its tree, version and time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;

use super::tools;
use crate::workspace;

/// The folder of what is packed, in that of the packages.
const SCRATCH: &str = "staging";

pub struct Release {
    root: PathBuf,
    out: PathBuf,
    version: String,
    /// Seconds since 1970, the time of each file in the packages.
    epoch: u64,
}

impl Release {
    /// Reads the version of the workspace and the time of its commit.
    pub fn read(out: Option<PathBuf>) -> Result<Self> {
        let root = workspace::root()?;
        let metadata = MetadataCommand::new().current_dir(&root).no_deps().exec()?;
        let cli = metadata.packages.iter().find(|package| *package.name == "esker-cli");
        let version = cli.context("there is no package esker-cli")?.version.to_string();
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => commit_time(&root)?,
        };
        let epoch = epoch.trim().parse().context("SOURCE_DATE_EPOCH: seconds since 1970")?;
        let out = match out {
            Some(out) => given_folder(&out)?,
            None => root.join("target/dist"),
        };
        Ok(Self { root, out, version, epoch })
    }

    /// Removes what an earlier run wrote.
    pub fn empty_folders(&self) -> Result<()> {
        if self.out.exists() {
            fs::remove_dir_all(&self.out)?;
        }
        fs::create_dir_all(self.scratch())?;
        Ok(())
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the packages.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// The folder of what is packed. It stays there to be looked at.
    pub fn scratch(&self) -> PathBuf {
        self.out.join(SCRATCH)
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// The folder of `--out`, which will be emptied: one that is empty, or of an earlier run.
pub fn given_folder(out: &Path) -> Result<PathBuf> {
    let out = std::path::absolute(out)?;
    let is_empty = || fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_none());
    let is_free = !out.exists() || out.join(SCRATCH).is_dir() || is_empty();
    ensure!(is_free, "{} has files that no dist made: give an empty folder", out.display());
    Ok(out)
}

fn commit_time(root: &Path) -> Result<String> {
    let log = ["log", "-1", "--format=%ct"];
    let printed = tools::output(Command::new("git").args(log).current_dir(root));
    let printed = printed.context("no time of a commit: set SOURCE_DATE_EPOCH")?;
    Ok(String::from_utf8(printed)?)
}

#[cfg(test)]
impl Release {
    /// Creates a release of the tree that is tested.
    pub fn for_test(out: &Path, epoch: u64) -> Result<Self> {
        let version = "1.2.3".to_owned();
        Ok(Self { root: workspace::root()?, out: out.to_path_buf(), version, epoch })
    }
}

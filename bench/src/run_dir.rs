//! The directory of a run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The directory in which everything happens; removed at the end.
pub struct RunDir(pub PathBuf);

impl RunDir {
    /// Creates it: `dir`, which must not exist, or one in `./target`.
    pub fn create(dir: Option<&Path>) -> Result<Self> {
        let dir = match dir {
            Some(dir) => std::path::absolute(dir)?,
            None => std::env::current_dir()?
                .join("target")
                .join(format!("esker-peers-{}", std::process::id())),
        };
        ensure!(!dir.exists(), "{} is there already; choose another --dir", dir.display());
        std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // What cannot be removed stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

//! The public API of each library, a file a crate: a change of it is seen in review.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use public_api::{Builder, PublicApi};

use crate::workspace::{self, PACKAGED};

/// The libraries that other programs build on.
const LIBRARIES: [&str; 8] =
    ["client", "consensus", "disk", "kv", "log", "oracle", "raft", "server"];

/// The command that checks the documentation of all crates. It writes rustdoc's JSON, not its
/// pages: the lints are the same.
pub fn rustdoc(root: &Path) -> Command {
    let mut command = workspace::cargo();
    // With the features of the clippy step, whose checked dependencies it uses.
    command.args(["doc", "--workspace", "--no-deps", "--features", PACKAGED]).current_dir(root);
    command.env("RUSTDOC", root.join("xtask/rustdoc-json"));
    command.env("RUSTDOCFLAGS", "-D warnings -Z unstable-options --output-format json");
    command
}

/// Compares each list with the JSON; returns the names of the lists that differ. `None` when this
/// compiler's JSON is not of the version that the library reads.
pub fn compare(root: &Path) -> Result<Option<Vec<PathBuf>>> {
    let mut stale = Vec::new();
    for library in LIBRARIES {
        let Some(listed) = list(root, library) else { return Ok(None) };
        let file = file_of(root, library);
        if std::fs::read_to_string(&file).unwrap_or_default() != listed {
            stale.push(file);
        }
    }
    Ok(Some(stale))
}

/// Writes the lists; `false` if the documentation has faults.
pub fn write(root: &Path) -> Result<bool> {
    if !rustdoc(root).status().context("cannot start cargo doc")?.success() {
        return Ok(false);
    }
    for library in LIBRARIES {
        let listed = list(root, library).context("this compiler's JSON cannot be read")?;
        let file = file_of(root, library);
        std::fs::write(&file, listed).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(true)
}

fn file_of(root: &Path, library: &str) -> PathBuf {
    root.join("crates").join(library).join("public-api.txt")
}

fn list(root: &Path, library: &str) -> Option<String> {
    let json = root.join(format!("target/doc/esker_{library}.json"));
    let api: PublicApi = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .ok()?;
    let mut text = String::new();
    for item in api.items() {
        let _ = writeln!(text, "{item}");
    }
    Some(text)
}

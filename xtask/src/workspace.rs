//! The root of the workspace, the cargo command, and the features of packages.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

/// Features of the command that packages have.
pub const PACKAGED: &str = "esker-cli/otlp,esker-cli/profile";

/// The folder of the root `Cargo.toml`.
pub fn root() -> Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = here.parent().context("xtask has no parent folder")?;
    Ok(root.to_path_buf())
}

/// The cargo that started us, so that a toolchain chosen on the command line (`cargo +beta xtask
/// verify`) holds for every step.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Variables that `cargo run` sets for this process must not reach the builds that it starts.
    for (name, _) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

//! Building what is run: the commands of the Go module, and the `esker` command of the cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::child;

/// How long a build may take.
const BUILD_TIMEOUT: Duration = Duration::from_secs(1800);

/// The Go commands, or why there is none.
pub type GoCommands = BTreeMap<&'static str, Result<PathBuf, String>>;

/// The directory of this workspace.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds each command by itself, so that one that fails to build does not prevent the others.
pub fn go(names: impl Iterator<Item = &'static str>) -> Result<GoCommands> {
    let own = std::env::current_exe().context("where this program is")?;
    let target = own.parent().context("where this program is")?.join("go");
    let mut commands = GoCommands::new();
    for name in names {
        commands.entry(name).or_insert_with(|| {
            eprintln!("building the Go peer {name}");
            let built = target.join(name);
            let mut go = Command::new("go");
            go.current_dir(home().join("go")).args(["build", "-mod=readonly", "-o"]).arg(&built);
            go.arg(format!("./cmd/{name}"));
            match child::output(&mut go, BUILD_TIMEOUT) {
                Ok(_) => Ok(built),
                Err(reason) => Err(format!("does not build: {reason}")),
            }
        });
    }
    Ok(commands)
}

/// Builds Esker's command and returns its path.
pub fn esker() -> Result<PathBuf> {
    eprintln!("building the esker command");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = home().join("../Cargo.toml");
    let mut build = Command::new(cargo);
    build.args(["build", "--profile=dist", "-p", "esker-cli", "--message-format=json"]);
    build.arg("--manifest-path").arg(manifest);
    let printed = child::output(&mut build, BUILD_TIMEOUT).map_err(|reason| anyhow!(reason))?;
    printed
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .context("cargo did not say where the command is")
}

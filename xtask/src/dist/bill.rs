//! The bill of materials: each crate in the programs, with version and licence.

use std::fs;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;

use super::release::Release;
use super::target::Target;
use super::tools;
use crate::workspace::{self, PACKAGED};

/// The name of the files that `cargo cyclonedx` writes beside each manifest of the workspace.
const FILE: &str = "bill-of-materials";
/// The packages of the programs, and the names of these.
const PROGRAMS: [(&str, &str); 2] = [("esker-cli", "esker"), ("unplug", "unplug")];

/// Writes a bill for each program, in CycloneDX, where `cargo cyclonedx` is installed.
pub fn write(release: &Release, target: Target) -> Result<()> {
    if !tools::is_installed("cargo-cyclonedx") {
        println!("SKIPPED the bill of materials: cargo install cargo-cyclonedx --locked");
        return Ok(());
    }
    let mut cargo = workspace::cargo();
    cargo.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"]);
    cargo.args(["--no-build-deps", "--target", target.triple(), "--features", &features()]);
    cargo.args(["--override-filename", FILE, "--manifest-path", "crates/cli/Cargo.toml"]);
    cargo.env("SOURCE_DATE_EPOCH", release.epoch().to_string()).current_dir(release.root());
    let written = tools::finish(&mut cargo);
    let kept = keep(release, target);
    written.and(kept)
}

/// The features of the packages, as the command of one package takes them.
fn features() -> String {
    PACKAGED.replace("esker-cli/", "")
}

/// Moves the bills of the programs to the packages, and removes the others.
fn keep(release: &Release, target: Target) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(release.root()).no_deps().exec()?;
    let here = release.root().to_str().context("a path that is not UTF-8")?;
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().context("a manifest without a folder")?;
        let file = folder.join(format!("{FILE}.json"));
        let program = PROGRAMS.iter().find(|(name, _)| *package.name == *name);
        if let Some((_, program)) = program {
            let text = fs::read_to_string(&file).with_context(|| file.to_string())?;
            let name = format!("{program}-{}-{}.cdx.json", release.version(), target.triple());
            fs::write(release.out().join(name), text.replace(here, "/esker"))?;
        }
        if file.exists() {
            fs::remove_file(&file)?;
        }
    }
    Ok(())
}

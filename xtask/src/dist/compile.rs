//! Builds the programs that are packed, with profile `dist`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::release::Release;
use super::target::Target;
use super::tools;
use crate::workspace::{self, PACKAGED};

/// The built programs.
pub struct Programs {
    pub esker: PathBuf,
    pub unplug: PathBuf,
}

impl Programs {
    pub fn in_folder(folder: &Path) -> Self {
        Self { esker: folder.join("esker"), unplug: folder.join("unplug") }
    }
}

/// The reason why this machine cannot build for `target`, if there is one.
pub fn missing(target: Target) -> Option<String> {
    let triple = target.triple();
    let Ok(sysroot) = tools::sysroot() else { return Some("no rustc".into()) };
    if !sysroot.join("lib/rustlib").join(triple).join("lib").is_dir() {
        return Some(format!("no libraries of Rust; rustup target add {triple}"));
    }
    let compilers = target.compilers();
    if !compilers.iter().any(|compiler| tools::is_installed(compiler)) {
        return Some(format!("no compiler of C; one of {}", compilers.join(", ")));
    }
    None
}

pub fn build(release: &Release, target: Target) -> Result<Programs> {
    let triple = target.triple();
    let compiler = target.compilers().iter().find(|compiler| tools::is_installed(compiler));
    let compiler = compiler.context("no compiler of C")?;
    let folder = release.root().join("target");
    let mut cargo = workspace::cargo();
    if tools::is_installed("cargo-auditable") {
        cargo.arg("auditable");
    }
    cargo.args(["build", "--locked", "--profile", "dist", "--target", triple]);
    cargo.args(["--package", "esker-cli", "--package", "unplug", "--bins"]);
    cargo.args(["--features", PACKAGED]).arg("--target-dir").arg(&folder);
    cargo.current_dir(release.root());
    cargo.env("SOURCE_DATE_EPOCH", release.epoch().to_string());
    let renamed = renamed_folders(release)?;
    let flags: Vec<_> = renamed.iter().map(|(from, to)| remap(from, to)).collect();
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // Objects of C name their sources, too.
    let flags = renamed.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    // The functions that check buffers are those of another C library.
    let flags = flags.chain(["-U_FORTIFY_SOURCE".into()]);
    cargo.env(for_target("CFLAGS", target), flags.collect::<Vec<_>>().join(" "));
    cargo.env(for_target("CC", target), compiler);
    if *compiler != "musl-gcc" {
        // The libraries of Rust bring the C library; any linker for the architecture will do.
        let name = triple.to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{name}_LINKER"), compiler);
    }
    tools::finish(&mut cargo)?;
    Ok(Programs::in_folder(&folder.join(triple).join("dist")))
}

/// The folders of this machine whose names are not to be in the programs, and what is there
/// instead.
fn renamed_folders(release: &Release) -> Result<[(String, &'static str); 3]> {
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("no CARGO_HOME")?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
    Ok([
        (text(release.root())?, "/esker"),
        (text(&cargo)?, "/cargo"),
        (text(&tools::sysroot()?)?, "/rust"),
    ])
}

fn remap(from: &str, to: &str) -> String {
    format!("--remap-path-prefix={from}={to}")
}

/// The name of a variable that is for the C compiler of one target.
fn for_target(name: &str, target: Target) -> String {
    format!("{name}_{}", target.triple().replace('-', "_"))
}

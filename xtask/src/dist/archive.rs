//! An archive for any Linux: one folder, compressed.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::contents::Contents;
use super::release::Release;
use super::staging::{self, PackedFile};
use super::target::Target;
use super::tools;

pub fn write(release: &Release, name: &str, target: Target, contents: &Contents) -> Result<()> {
    let full = format!("{name}-{}-{}", release.version(), target.triple());
    let scratch = release.scratch();
    staging::write(&scratch.join(&full), &contents.files.iter().map(placed).collect::<Vec<_>>())?;
    let archive = scratch.join(format!("{full}.tar"));
    tar(release, &scratch, &[&full], &archive)?;
    std::fs::write(release.out().join(format!("{full}.tar.gz")), tools::gzip(&archive)?)?;
    std::fs::remove_file(&archive)?;
    Ok(())
}

/// Packs `names` in `folder`: entries in order, with the time of the release and no owner.
pub fn tar(release: &Release, folder: &Path, names: &[&str], archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--numeric-owner"]);
    tar.args(["--owner=0", "--group=0"]).arg(format!("--mtime=@{}", release.epoch()));
    tar.arg("--file").arg(archive).arg("--directory").arg(folder).args(names);
    tools::finish(&mut tar)
}

/// The file where an archive has it, below the folder that it is unpacked to, such as `/usr/local`.
fn placed(file: &PackedFile) -> PackedFile {
    let path = file.path.strip_prefix("usr/").unwrap_or(&file.path).to_owned();
    PackedFile { path, ..file.clone() }
}

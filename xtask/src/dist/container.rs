//! The image for containers, and the folder from which it is built.

use std::process::{Command, Stdio};

use anyhow::Result;

use super::archive;
use super::compile::Programs;
use super::release::Release;
use super::staging::{self, PackedFile};
use super::target::Target;
use super::tools;

/// Writes `image-ARCHITECTURE` beside the packages, for any builder of images, and has buildah
/// build an archive from it where it is installed.
pub fn write(release: &Release, target: Target, programs: &Programs) -> Result<()> {
    let architecture = target.architecture();
    let folder = release.out().join(format!("image-{architecture}"));
    let recipe = release.root().join("packaging/Containerfile");
    let files = [
        PackedFile::copy("Containerfile", recipe),
        PackedFile::program("esker", &programs.esker),
        // An image has no empty folder.
        PackedFile::text("data/README", "The data of a node goes here.\n"),
    ];
    staging::write(&folder, &files)?;
    if !tools::is_installed("buildah") {
        println!("SKIPPED the image for {architecture}: no buildah");
        return Ok(());
    }
    let name = format!("esker-{}-{architecture}.oci", release.version());
    let scratch = release.scratch();
    let layout = scratch.join(&name);
    let mut build = Command::new("buildah");
    // With a storage of its own, which the next run removes.
    build.arg("--root").arg(scratch.join("images")).arg("--runroot").arg(scratch.join("runs"));
    build.args(["--storage-driver=vfs", "build", "--quiet", "--isolation=chroot"]);
    build.arg(format!("--timestamp={}", release.epoch())).args(["--arch", architecture]);
    build.arg(format!("--tag=oci:{}:{}", layout.display(), release.version()));
    if let Err(error) = tools::finish(build.arg(&folder).stdout(Stdio::null())) {
        println!("SKIPPED the image for {architecture}: {error:#}");
        return Ok(());
    }
    // The archive of buildah has the times of this run.
    archive::tar(release, &layout, ".", &release.out().join(format!("{name}.tar")))
}

//! The image for containers, and the folder from which it is built.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

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
    if let Err(error) = build(release, architecture, &folder) {
        println!("SKIPPED the image for {architecture}: {error:#}");
    }
    Ok(())
}

fn build(release: &Release, architecture: &str, folder: &Path) -> Result<()> {
    let name = format!("localhost/esker:{}", release.version());
    let file = format!("esker-{}-{architecture}.docker", release.version());
    let built = release.scratch().join(format!("{file}.tar"));
    let mut build = buildah(release);
    // An image in the format of OCI has no health check.
    build.args(["build", "--quiet", "--format=docker", "--identity-label=false"]);
    build.args(["--isolation=chroot", "--arch", architecture, "--tag", &name]);
    build.arg(format!("--timestamp={}", release.epoch())).arg(folder);
    tools::finish(build.stdout(Stdio::null()))?;
    let mut push = buildah(release);
    push.args(["push", "--quiet", &name]);
    tools::finish(push.arg(format!("docker-archive:{}:{name}", built.display())))?;
    let packed = release.scratch().join(&file);
    let files = repeatable(&built, &packed, &name).with_context(|| built.display().to_string())?;
    archive::tar(release, &packed, &files, &release.out().join(format!("{file}.tar")))
}

/// Unpacks an archive of an image into `folder`, without the names of the container in which it was
/// built: they differ from run to run. Returns the files that the archive needs.
pub fn repeatable(archive: &Path, folder: &Path, name: &str) -> Result<[&'static str; 3]> {
    const FILES: [&str; 3] = ["config.json", "layer.tar", "manifest.json"];
    let [config_file, layer_file, manifest_file] = FILES.map(|file| folder.join(file));
    fs::create_dir_all(folder)?;
    let mut tar = Command::new("tar");
    tools::finish(tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(folder))?;
    let manifest: Value = serde_json::from_slice(&fs::read(&manifest_file)?)?;
    let path = |value: &Value| value.as_str().map(|path| folder.join(path));
    let config = path(&manifest[0]["Config"]).context("no config")?;
    let layer = path(&manifest[0]["Layers"][0]).context("no layer")?;
    let mut config: Value = serde_json::from_slice(&fs::read(config)?)?;
    let fields = config.as_object_mut().context("the config is no object")?;
    fields.retain(|key, _| !["container", "container_config"].contains(&&**key));
    config["config"]["Hostname"] = json!("");
    fs::write(config_file, serde_json::to_vec(&config)?)?;
    fs::rename(layer, layer_file)?;
    let manifest = json!([{ "Config": FILES[0], "Layers": [FILES[1]], "RepoTags": [name] }]);
    fs::write(manifest_file, serde_json::to_vec(&manifest)?)?;
    for file in FILES {
        fs::set_permissions(folder.join(file), Permissions::from_mode(0o644))?;
    }
    Ok(FILES)
}

/// buildah with a storage of its own, which the next run removes.
fn buildah(release: &Release) -> Command {
    let scratch = release.scratch();
    let mut buildah = Command::new("buildah");
    buildah.arg("--root").arg(scratch.join("images")).arg("--runroot").arg(scratch.join("runs"));
    buildah.arg("--storage-driver=vfs");
    buildah
}

//! Packages for Debian and what descends from it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::contents::Contents;
use super::release::Release;
use super::staging::{self, PackedFile, Source};
use super::target::Target;
use super::tools;

/// The folder of what describes a package, which is not installed.
const DESCRIPTION: &str = "DEBIAN";
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// The reason why this machine cannot make these packages, if there is one.
pub fn missing() -> Option<&'static str> {
    (!tools::is_installed("dpkg-deb")).then_some("no dpkg-deb")
}

pub fn write(release: &Release, name: &str, target: Target, contents: &Contents) -> Result<()> {
    let architecture = target.architecture();
    let full = format!("{name}_{}_{architecture}", version(release));
    let folder = release.scratch().join(&full);
    staging::write(&folder, &contents.files)?;
    let is_setting = |path: &str| contents.settings.iter().any(|setting| setting[1..] == *path);
    let paths = contents.files.iter().map(|file| file.path.as_str());
    let mut summed: Vec<_> = paths.filter(|path| !is_setting(path)).collect();
    summed.sort_unstable();
    let mut files = contents.files.clone();
    let described = |file: &str, bytes| PackedFile::text(format!("{DESCRIPTION}/{file}"), bytes);
    files.push(described("md5sums", tools::md5_sums(&folder, &summed)?));
    files.push(described("control", control(release, name, target, contents)?.into_bytes()));
    if !contents.settings.is_empty() {
        let settings: String = contents.settings.iter().map(|path| format!("{path}\n")).collect();
        files.push(described("conffiles", settings.into_bytes()));
    }
    for script in SCRIPTS {
        let source = release.root().join("packaging/deb").join(name).join(script);
        if source.is_file() {
            files.push(PackedFile::program(format!("{DESCRIPTION}/{script}"), source));
        }
    }
    staging::write(&folder, &files)?;
    let mut build = Command::new("dpkg-deb");
    build.args(["-Zxz", "--root-owner-group", "--build"]).arg(&folder);
    build.arg(release.out().join(format!("{full}.deb")));
    build.env("SOURCE_DATE_EPOCH", release.epoch().to_string());
    // Threads, whose number is that of the processors, may change the bytes.
    build.env("DPKG_DEB_THREADS_MAX", "1");
    tools::finish(build.stdout(std::process::Stdio::null()))
}

/// The version as Debian orders it: a release candidate is below its release.
fn version(release: &Release) -> String {
    release.version().replace('-', "~")
}

fn control(release: &Release, name: &str, target: Target, contents: &Contents) -> Result<String> {
    let source = release.root().join("packaging/deb").join(name).join("control");
    let text = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
    let mut bytes = 0;
    for file in &contents.files {
        bytes += match &file.source {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::File(path) => fs::metadata(path)?.len(),
        };
    }
    Ok(text
        .replace("@VERSION@", &version(release))
        .replace("@ARCHITECTURE@", target.architecture())
        .replace("@KIBIBYTES@", &bytes.div_ceil(1024).to_string()))
}

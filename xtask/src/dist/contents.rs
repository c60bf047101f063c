//! The files of each package.

use super::compile::Programs;
use super::licences::Licences;
use super::pages::Pages;
use super::release::Release;
use super::staging::PackedFile;

/// The files of a package under their paths in a system, and those of them that are settings.
pub struct Contents {
    pub files: Vec<PackedFile>,
    pub settings: Vec<String>,
}

pub fn esker(
    release: &Release,
    programs: &Programs,
    pages: &Pages,
    licences: &Licences,
) -> Contents {
    let packaging = release.root().join("packaging");
    let mut files = vec![
        PackedFile::program("usr/bin/esker", &programs.esker),
        PackedFile::copy("etc/esker/esker.toml", packaging.join("esker.toml")),
        PackedFile::copy(
            "usr/lib/systemd/system/esker.service",
            packaging.join("systemd/esker.service"),
        ),
        PackedFile::copy(
            "usr/share/esker/prometheus/alerts.yml",
            packaging.join("prometheus/alerts.yml"),
        ),
        PackedFile::copy(
            "usr/share/esker/grafana/esker.json",
            packaging.join("grafana/esker.json"),
        ),
    ];
    files.extend(pages.files().iter().cloned());
    files.extend(documents(release, "esker", licences));
    Contents { files, settings: vec!["/etc/esker/esker.toml".into()] }
}

pub fn unplug(release: &Release, programs: &Programs, licences: &Licences) -> Contents {
    let mut files = vec![PackedFile::program("usr/bin/unplug", &programs.unplug)];
    files.extend(documents(release, "unplug", licences));
    files.push(PackedFile::copy(
        "usr/share/doc/unplug/unplug.md",
        release.root().join("docs/src/unplug.md"),
    ));
    Contents { files, settings: Vec::new() }
}

fn documents(release: &Release, name: &str, licences: &Licences) -> Vec<PackedFile> {
    let copied = ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"].map(|document| {
        PackedFile::copy(format!("usr/share/doc/{name}/{document}"), release.root().join(document))
    });
    let mut files = Vec::from(copied);
    let copyright = format!("usr/share/doc/{name}/copyright");
    files.push(PackedFile::copy(copyright, release.root().join("packaging/deb/copyright")));
    let others = format!("usr/share/doc/{name}/LICENSES-OTHERS");
    files.push(PackedFile::text(others, licences.text(name)));
    let library = format!("usr/share/doc/{name}/COPYRIGHT-rust.html");
    files.push(PackedFile::copy(library, licences.standard_library()));
    files
}

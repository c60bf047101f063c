//! Manual pages and completions, as the program prints them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::release::Release;
use super::staging::PackedFile;
use super::tools;

/// Where each shell looks for the completions of a program.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/esker"),
    ("zsh", "usr/share/zsh/site-functions/_esker"),
    ("fish", "usr/share/fish/vendor_completions.d/esker.fish"),
];

pub struct Pages(Vec<PackedFile>);

impl Pages {
    /// Has `esker` print its pages, which needs a program that runs on this machine.
    pub fn printed_by(release: &Release, esker: &Path) -> Result<Self> {
        let folder = release.scratch().join("man");
        fs::create_dir_all(&folder)?;
        let runs = "the first target has to run on this machine";
        tools::finish(Command::new(esker).arg("man").arg(&folder)).context(runs)?;
        let mut files = Vec::new();
        for page in fs::read_dir(&folder)? {
            let page = page?;
            let name = page.file_name().into_string().ok().context("a page without a name")?;
            let compressed = tools::gzip(&page.path())?;
            files.push(PackedFile::text(format!("usr/share/man/man1/{name}.gz"), compressed));
        }
        for (shell, path) in COMPLETIONS {
            let printed = tools::output(Command::new(esker).args(["completions", shell]))?;
            files.push(PackedFile::text(path, printed));
        }
        Ok(Self(files))
    }

    pub fn files(&self) -> &[PackedFile] {
        &self.0
    }
}

//! The licences of what is compiled into a program: crates, and the standard library.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use super::release::Release;
use super::target::Target;
use super::tools;
use crate::workspace::PACKAGED;

/// How the files begin that have a licence or a notice.
const FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// Below the folder of the compiler: the notices of the standard library.
const STANDARD_LIBRARY: &str = "share/doc/rust/COPYRIGHT-library.html";

pub struct Licences {
    esker: String,
    unplug: String,
    standard_library: PathBuf,
}

impl Licences {
    /// The text for the package of a program.
    pub fn text(&self, name: &str) -> &str {
        match name {
            "unplug" => &self.unplug,
            _ => &self.esker,
        }
    }

    /// The file with the notices of the standard library.
    pub fn standard_library(&self) -> &Path {
        &self.standard_library
    }
}

/// Reads the licences from the sources of the crates, which cargo has fetched to build them.
pub fn collect(release: &Release, target: Target) -> Result<Licences> {
    let platform = format!("--filter-platform={}", target.triple());
    let metadata = MetadataCommand::new()
        .current_dir(release.root())
        .other_options(vec!["--features".into(), PACKAGED.into(), platform, "--locked".into()])
        .exec()?;
    Ok(Licences {
        esker: of_program(&metadata, "esker-cli")?,
        unplug: of_program(&metadata, "unplug")?,
        standard_library: tools::sysroot()?.join(STANDARD_LIBRARY),
    })
}

fn of_program(metadata: &Metadata, program: &str) -> Result<String> {
    let mut text = format!("The licences of the crates in {program}.\n\n");
    // Many crates have the same text: it is there once, below the names of all of them.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in compiled(metadata, program)? {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see below");
        writeln!(text, "{name}: {licence}")?;
        for licence in files(package)? {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|(_, a), (_, b)| a.cmp(b));
    for (licence, names) in texts {
        write!(text, "\n{}\n{}\n\n{}\n", "=".repeat(80), names.join(", "), licence.trim_end())?;
    }
    Ok(text)
}

/// The crates of others that `program` is compiled from, in order of their names.
fn compiled<'a>(metadata: &'a Metadata, program: &str) -> Result<Vec<&'a Package>> {
    let resolve = metadata.resolve.as_ref().context("no resolved dependencies")?;
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let root = metadata.packages.iter().find(|package| *package.name == program);
    let mut waiting = vec![&root.context("no such package")?.id];
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if reached.insert(id) {
            let node = nodes.get(id).context("a package without dependencies")?;
            let normal = node.deps.iter().filter(|dependency| {
                dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            });
            waiting.extend(normal.map(|dependency| &dependency.pkg));
        }
    }
    let others = metadata.packages.iter().filter(|package| package.source.is_some());
    let mut packages: Vec<_> = others.filter(|package| reached.contains(&package.id)).collect();
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    Ok(packages)
}

/// The texts of the licences in the sources of a crate.
fn files(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest without a folder")?;
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if FILES.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            files.push((name, fs::read(entry.path())?));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, text)| String::from_utf8_lossy(&text).into_owned()).collect())
}

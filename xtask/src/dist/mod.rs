//! The packages of a release, in `target/dist/`.
//!
//! Two runs on one commit with the same tools write the same bytes: times come from the commit,
//! entries are sorted, owners and modes are fixed, and the programs hold no path of this machine.

mod archive;
mod bill;
mod compile;
mod container;
mod contents;
mod debian;
mod licences;
mod pages;
mod release;
mod staging;
mod target;
pub mod tools;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use compile::Programs;
use pages::Pages;
use release::Release;
use target::Target;

/// The targets and programs to pack.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// A target to build for, like x86_64-unknown-linux-musl [default: all]
    #[arg(long = "target", value_name = "TRIPLE")]
    targets: Vec<Target>,
    /// Pack the programs of this folder instead of building them; for one --target
    #[arg(long, value_name = "DIR", requires = "targets")]
    programs: Option<PathBuf>,
    /// The folder of the packages: one that is empty, or of an earlier run, which is emptied first
    /// [default: target/dist]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Builds and packs; `false` if no target could be built.
pub fn run(options: &Options) -> Result<bool> {
    ensure!(options.programs.is_none() || options.targets.len() == 1, "--programs: one --target");
    let release = Release::read(options.out.clone())?;
    release.empty_folders()?;
    let targets = match options.targets.is_empty() {
        true => &Target::ALL[..],
        false => &options.targets,
    };
    let mut pages = None;
    for target in targets {
        let programs = match &options.programs {
            Some(folder) => Programs::in_folder(folder),
            None => match compile::missing(*target) {
                Some(why) => {
                    println!("SKIPPED {}: {why}", target.triple());
                    continue;
                }
                None => compile::build(&release, *target)?,
            },
        };
        // The first target is that of this machine: its program prints the pages of all.
        let pages = match &mut pages {
            Some(pages) => pages,
            none => none.insert(Pages::printed_by(&release, &programs.esker)?),
        };
        pack(&release, *target, &programs, pages)?;
        container::write(&release, *target, &programs)?;
        bill::write(&release, *target)?;
    }
    if pages.is_none() {
        return Ok(false);
    }
    tools::write_sums(release.out())?;
    let mut packages: Vec<_> = fs::read_dir(release.out())?.collect::<Result<_, _>>()?;
    packages.sort_by_key(fs::DirEntry::file_name);
    for package in packages.iter().filter(|package| package.path().is_file()) {
        println!("{:>10} {}", package.metadata()?.len(), package.path().display());
    }
    Ok(true)
}

fn pack(release: &Release, target: Target, programs: &Programs, pages: &Pages) -> Result<()> {
    let licences = licences::collect(release, target)?;
    let esker = contents::esker(release, programs, pages, &licences);
    let unplug = contents::unplug(release, programs, &licences);
    for (name, contents) in [("esker", &esker), ("unplug", &unplug)] {
        archive::write(release, name, target, contents).context("the archive")?;
        match debian::missing() {
            Some(why) => println!("SKIPPED {name} for Debian: {why}"),
            None => debian::write(release, name, target, contents).context("the Debian package")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! `cargo xtask experiment`: the page of the experiment, generated from recorded results.
//!
//! `--run` records them first, with a release build of the command. `tidy` compares the page and
//! the picture with what this writes.

mod chart;
mod file_systems;
mod page;
mod record;
mod results;

use std::path::Path;

use anyhow::{Context, Result};

pub use record::Options;
use results::Results;

/// The recorded figures, one JSON object a line.
pub const RESULTS: &str = "bench/results/experiment.jsonl";
pub const PAGE: &str = "docs/src/experiment.md";
pub const PICTURE: &str = "docs/src/experiment.svg";

/// Records if that is asked for, and writes the page and the picture.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    if options.run {
        record::run(root, RESULTS, options)?;
    }
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let results = Results::parse(&read(RESULTS)?)?;
    std::fs::write(root.join(PAGE), page::filled(&read(PAGE)?, &results)?)?;
    std::fs::write(root.join(PICTURE), chart::svg(&results)?)?;
    println!("experiment: wrote {PAGE} and {PICTURE}");
    Ok(true)
}

/// Places in the page or the picture that do not follow from the results.
pub fn differences(results: &str, page: &str, picture: &str) -> Result<Vec<(&'static str, usize)>> {
    let results = Results::parse(results)?;
    let mut found = Vec::new();
    for (path, has, wanted) in
        [(PAGE, page, page::filled(page, &results)?), (PICTURE, picture, chart::svg(&results)?)]
    {
        if has != wanted {
            let same = has.lines().zip(wanted.lines()).take_while(|(has, wanted)| has == wanted);
            found.push((path, same.count() + 1));
        }
    }
    Ok(found)
}

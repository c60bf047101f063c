//! Mutation testing: a test is evidence only if it fails with its mutation applied.
//!
//! All steps run in a copy of the tree. An interrupted run leaves a copy that the next run updates.
//!
//! 1. The tests pass without a mutation, or their failure would prove nothing.
//! 2. For each mutation, the tree with the mutation in it compiles, or the failure would be the
//!    compiler's.
//! 3. Its test fails.

mod bounded;
mod report;
mod scratch;
mod trial;

use anyhow::{Context, Result, ensure};

use crate::{mutations, workspace};
use bounded::Interrupt;
use scratch::Scratch;
use trial::{Ending, Trials};

/// Arguments of `cargo xtask mutate`.
#[derive(clap::Args)]
pub struct Options {
    /// The folder of a crate in crates/
    #[arg(value_name = "CRATE")]
    folder: String,
    /// Only these mutations of the crate's list
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// `false` if a mutation escaped or could not be tried.
pub fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let folder = format!("crates/{}", options.folder);
    let list = root.join(&folder).join(mutations::FILE);
    let text = std::fs::read_to_string(&list).with_context(|| format!("{}", list.display()))?;
    let mut mutations = mutations::parse(&text).with_context(|| format!("{}", list.display()))?;
    for name in &options.names {
        ensure!(mutations.contains_key(name), "{}: there is no mutation {name}", list.display());
    }
    if !options.names.is_empty() {
        mutations.retain(|name, _| options.names.contains(name));
    }

    let interrupt = Interrupt::install()?;
    let scratch = Scratch::copy_of(&root)?;
    let trials = Trials::begin(&scratch, &interrupt, &folder, &mutations)?;
    let (mut caught, mut escaped, mut untried) = (0, 0, 0);
    for (name, mutation) in &mutations {
        let trial = trials.run(mutation)?;
        match trial.ending {
            Ending::Caught { .. } => caught += 1,
            Ending::Escaped => escaped += 1,
            Ending::Untried(_) => untried += 1,
        }
        println!("{}", report::line(name, mutation, &trial));
    }
    println!("mutate: {caught} caught, {escaped} escaped, {untried} could not be tried");
    Ok(escaped + untried == 0)
}

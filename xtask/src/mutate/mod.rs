//! Mutation testing: a test is evidence only if it fails with its mutation applied.
//!
//! All steps run in a copy of the tree. An interrupted run leaves a copy that the next run updates.
//! For each mutation:
//!
//! 1. the test passes without the mutation (once for each distinct test), or its failure would
//!    prove nothing;
//! 2. the tree with the mutation in it compiles, or the failure would be the compiler's;
//! 3. the test fails.

mod bounded;
mod report;
mod scratch;
mod trial;

use std::path::Path;

use anyhow::{Result, ensure};

use crate::mutations::Mutation;
use crate::tidy::{mutation_list, tree::Tree};
use crate::{mutations, workspace};
use bounded::Interrupt;
use scratch::Scratch;
use trial::{Ending, Trials};

/// What `cargo xtask mutate` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Only the mutation with this id; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the mutations and apply none
    #[arg(long)]
    list: bool,
    /// Check that each mutation's text occurs once in its file and its command selects a test, and
    /// run nothing
    #[arg(long, conflicts_with_all = ["list", "no_baseline"])]
    check: bool,
    /// Do not run the tests without the mutation first
    #[arg(long)]
    no_baseline: bool,
}

/// `false` if a mutation escaped or could not be tried.
pub fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let mut mutations = mutations::parse(&std::fs::read_to_string(root.join(mutations::FILE))?)?;
    if !options.only.is_empty() {
        for name in &options.only {
            ensure!(
                mutations.iter().any(|mutation| mutation.id == *name),
                "no mutation is called {name}"
            );
        }
        mutations.retain(|mutation| options.only.contains(&mutation.id));
    }
    if options.list {
        mutations.iter().for_each(|mutation| println!("{}", report::listed(mutation)));
        return Ok(true);
    }

    if options.check {
        return check(&root, &mutations);
    }
    let interrupt = Interrupt::install()?;
    let scratch = Scratch::copy_of(&root)?;
    let mut trials = Trials::new(&scratch, &interrupt, !options.no_baseline);
    let (mut caught, mut escaped, mut untried) = (0, 0, 0);
    for mutation in &mutations {
        let trial = trials.run(mutation)?;
        match trial.ending {
            Ending::Caught { .. } => caught += 1,
            Ending::Escaped { .. } => escaped += 1,
            Ending::Untried(_) => untried += 1,
        }
        println!("{}", report::line(mutation, &trial));
    }
    println!("mutate: {caught} caught, {escaped} escaped, {untried} could not be tried");
    Ok(escaped + untried == 0)
}

/// `false` if the text of a mutation is not found, or is found twice, or its command selects no
/// test.
fn check(root: &Path, mutations: &[Mutation]) -> Result<bool> {
    let tree = Tree::read(root)?;
    let mut misses = 0;
    for mutation in mutations {
        let found = mutation_list::unusable(&tree, mutation);
        misses += usize::from(!found.is_empty());
        found.iter().for_each(|why| println!("{why}"));
    }
    println!("mutate: {} apply, {misses} do not", mutations.len() - misses);
    Ok(misses == 0)
}

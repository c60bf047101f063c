//! Mutation evidence: a test counts when it was seen failing with its fault planted.
//!
//! Everything happens in a copy of the tree, so a run that is cut short leaves nothing behind but
//! a copy that the next run puts right. For each fault:
//!
//! 1. the test passes without the fault (once for each distinct test), or its failure would prove
//!    nothing;
//! 2. the tree with the fault in it compiles, or the failure would be the compiler's;
//! 3. the test fails.

mod bounded;
mod report;
mod scratch;
mod trial;

use anyhow::{Result, ensure};

use crate::{faults, workspace};
use bounded::Interrupt;
use scratch::Scratch;
use trial::{Ending, Trials};

/// What `cargo xtask plant` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Only the fault with this id; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the faults and plant none
    #[arg(long)]
    list: bool,
    /// Do not run the tests without the fault first
    #[arg(long)]
    no_baseline: bool,
}

/// `false` if a fault escaped or could not be tried.
pub fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let mut faults = faults::parse(&std::fs::read_to_string(root.join(faults::FILE))?)?;
    if !options.only.is_empty() {
        for name in &options.only {
            ensure!(faults.iter().any(|fault| fault.id == *name), "no fault is called {name}");
        }
        faults.retain(|fault| options.only.contains(&fault.id));
    }
    if options.list {
        faults.iter().for_each(|fault| println!("{}", report::listed(fault)));
        return Ok(true);
    }

    let interrupt = Interrupt::install()?;
    let scratch = Scratch::copy_of(&root)?;
    let mut trials = Trials::new(&scratch, &interrupt, !options.no_baseline);
    let (mut caught, mut escaped, mut untried) = (0, 0, 0);
    for fault in &faults {
        let trial = trials.run(fault)?;
        match trial.ending {
            Ending::Caught { .. } => caught += 1,
            Ending::Escaped { .. } => escaped += 1,
            Ending::Untried(_) => untried += 1,
        }
        println!("{}", report::line(fault, &trial));
    }
    println!("plant: {caught} caught, {escaped} escaped, {untried} could not be tried");
    Ok(escaped + untried == 0)
}

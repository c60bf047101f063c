//! Planted bugs, one after the other, and what catches each.

use std::time::Instant;

use esker_lab::selftest::{HuntResult, Scope, bugs, hunt};
use serde::Serialize;

use esker_command::exit::{Failure, Outcome};
use esker_command::output;
use esker_command::progress;

/// The outcome of a bug.
#[derive(Debug, Serialize)]
struct Row {
    bug: &'static str,
    caught: bool,
    by: Option<String>,
    cuts: u64,
    runs: u64,
    seed: Option<u64>,
    what: Option<String>,
    seconds: f64,
}

impl Row {
    fn new(found: HuntResult, seconds: f64) -> Self {
        let HuntResult { bug, cuts, runs, by } = found;
        let (by, seed, what) = match by {
            Some(catch) => {
                let setting = catch.setting;
                let (component, policy) = (setting.component, setting.policy);
                let by = format!("{} {component} {policy}", setting.instrument);
                (Some(by), Some(catch.seed), Some(catch.what))
            }
            None => (None, None, None),
        };
        Self { bug, caught: by.is_some(), by, cuts, runs, seed, what, seconds }
    }

    fn line(&self) -> String {
        let (bug, cuts, runs) = (self.bug, self.cuts, self.runs);
        match &self.by {
            Some(by) => {
                format!("{bug:<40} caught   {cuts:>7} cuts {runs:>6} runs   {by}\n")
            }
            None => format!("{bug:<40} ESCAPED  {cuts:>7} cuts {runs:>6} runs\n"),
        }
    }
}

/// Plants a bug in this process.
pub fn planted(name: &str) -> Outcome<impl Drop + use<>> {
    esker_lab::selftest::planted(name).ok_or_else(|| no_bug(name))
}

fn no_bug(name: &str) -> Failure {
    Failure::usage(format!("no bug is named {name}; there are {}", bugs().join(", ")))
}

/// Plants these bugs, or all if none is named, and prints what caught each.
pub fn run(selected: &[String], json: bool) -> Outcome {
    let all = bugs();
    if let Some(unknown) = selected.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(no_bug(unknown));
    }
    let is_selected =
        |name: &&str| selected.is_empty() || selected.iter().any(|selected| selected == name);
    let names: Vec<_> = all.into_iter().filter(is_selected).collect();
    let bar = progress::runs_bar(names.len() as u64);
    let mut escaped = Vec::new();
    for name in names {
        let start = Instant::now();
        let Some(found) = hunt(name, Scope::All) else { continue };
        let row = Row::new(found, start.elapsed().as_secs_f64());
        if !row.caught {
            escaped.push(name);
        }
        bar.suspend(|| match json {
            true => output::print_json(&row),
            false => output::print(&row.line()),
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    match escaped.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(format!("not caught: {}", escaped.join(", ")))),
    }
}

//! Progress bars on standard error.

use std::io::{self, IsTerminal};

use esker_log::ReadProgress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Returns a bar that counts bytes of input, or a counter when the size is unknown. Hidden unless
/// standard error is a terminal and standard input is not.
pub fn input_bar(size: Option<u64>) -> ProgressBar {
    if io::stdin().is_terminal() {
        return ProgressBar::hidden();
    }
    let shape = match size {
        Some(_) => "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        None => "{spinner} {bytes}, {bytes_per_sec}, {elapsed}",
    };
    bar(size, shape)
}

/// Returns a bar that counts keys of output. Hidden unless standard error is a terminal and
/// standard output is not.
pub fn keys_bar(keys: u64) -> ProgressBar {
    if io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    bar(Some(keys), "{bar:40} {human_pos} of {human_len} keys, {per_sec}, {eta} left")
}

/// Returns a bar that counts runs. Hidden unless standard error is a terminal.
pub fn runs_bar(runs: u64) -> ProgressBar {
    bar(Some(runs), "{bar:40} {human_pos} of {human_len} runs, {per_sec}, {eta} left")
}

/// Returns a bar that counts bytes of a log that is checked. Hidden with `--json`, or unless
/// standard error is a terminal.
pub fn bytes_bar(as_json: bool) -> ProgressBar {
    let shape = "checking {bar:20} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if as_json { ProgressBar::hidden() } else { bar(Some(0), shape) }
}

/// Returns a bar that counts bytes of a log that is copied. Hidden with `--json`, or unless
/// standard error is a terminal.
pub fn copy_bar(bytes: u64, as_json: bool) -> ProgressBar {
    let shape = "copying {bar:20} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if as_json { ProgressBar::hidden() } else { bar(Some(bytes), shape) }
}

/// Returns a bar that counts the works of a benchmark, and shows the current one. Hidden with
/// `--json`, or unless standard error is a terminal.
pub fn works_bar(works: u64, as_json: bool) -> ProgressBar {
    let shape = "{bar:20} {human_pos} of {human_len}, {elapsed}: {msg}";
    if as_json { ProgressBar::hidden() } else { bar(Some(works), shape) }
}

/// Returns a bar that counts records of a log. Hidden with `--json`, or unless standard error is a
/// terminal.
pub fn records_bar(records: u64, as_json: bool) -> ProgressBar {
    if as_json {
        return ProgressBar::hidden();
    }
    bar(Some(records), "reading {bar:20} {human_pos} of {human_len} records, {eta} left")
}

/// Returns what moves a bar of bytes as a log is read.
pub fn follow(bar: &ProgressBar) -> impl FnMut(ReadProgress) {
    let bar = bar.clone();
    move |progress: ReadProgress| {
        if bar.length() != Some(progress.total) {
            bar.set_length(progress.total);
        }
        bar.set_position(progress.read.min(progress.total));
    }
}

fn bar(size: Option<u64>, shape: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(10))
        .with_finish(ProgressFinish::AndClear);
    match ProgressStyle::with_template(shape) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

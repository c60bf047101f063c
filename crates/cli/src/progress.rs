//! Progress bars on standard error.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Returns a bar that counts bytes of input, or a counter when the size is unknown. Hidden unless
/// standard error is a terminal and standard input is not.
pub fn of_input(size: Option<u64>) -> ProgressBar {
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
pub fn of_keys(keys: u64) -> ProgressBar {
    if io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    bar(Some(keys), "{bar:40} {human_pos} of {human_len} keys, {per_sec}, {eta} left")
}

/// Returns a bar that counts runs. Hidden unless standard error is a terminal.
pub fn of_runs(runs: u64) -> ProgressBar {
    bar(Some(runs), "{bar:40} {human_pos} of {human_len} runs, {per_sec}, {eta} left")
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

//! The progress bar on standard error.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

const BAR: &str = "checking {bar:20} {human_pos} of {human_len} states, {per_sec}, {eta} left";
const DRAWS_PER_SECOND: u8 = 10;

/// Returns a bar that counts checked states. Hidden with `--json`, or unless standard error is a
/// terminal.
pub fn states_bar(states: usize, as_json: bool) -> ProgressBar {
    if as_json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
    let bar = ProgressBar::with_draw_target(Some(states as u64), target)
        .with_finish(ProgressFinish::AndClear);
    match ProgressStyle::with_template(BAR) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

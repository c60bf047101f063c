//! The warm-up and the slices of a timed part.

use std::time::Duration;

use crate::load::slice::Until;
use crate::log::log_arguments::{LogBenchArguments, SECONDS};

/// The longest warm-up before the timed part, in seconds and as a part of the timed part.
const WARM_UP_S: f64 = 0.3;
const WARM_UP_PART: f64 = 0.2;

/// The warm-up and the slices of the timed part. The floor is sampled between slices.
#[derive(Debug)]
pub struct Plan {
    pub warm_up: Until,
    pub slices: Vec<Until>,
    /// The length of the timed part, unless it is a count.
    pub seconds: Option<f64>,
}

impl Plan {
    /// Plans for this many callers. A count is that of all callers; each has at least two.
    pub fn new(arguments: &LogBenchArguments, callers: u32) -> Self {
        if let Some(count) = arguments.count {
            let each = count.div_ceil(u64::from(callers)).max(2);
            let half = each / 2;
            let warm_up = ((each as f64 * WARM_UP_PART) as u64).max(1);
            return Self {
                warm_up: Until::Records(warm_up),
                slices: vec![Until::Records(half), Until::Records(each - half)],
                seconds: None,
            };
        }
        let seconds = arguments.seconds.unwrap_or(SECONDS);
        let slices = if seconds < 3.0 { 2 } else { 3 };
        let time = |seconds: f64| Until::Elapsed(Duration::from_secs_f64(seconds));
        Self {
            warm_up: time((seconds * WARM_UP_PART).min(WARM_UP_S)),
            slices: vec![time(seconds / f64::from(slices)); slices as usize],
            seconds: Some(seconds),
        }
    }
}

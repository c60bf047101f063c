//! The lines of the stages, the result, and the mark.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::users::connection::Protocol;
use crate::users::stages::{Plan, Scenario};
use crate::users::tally::{HistoryCheck, StageTally};

/// 99 of 100 requests get their timestamp in less.
const P99_MS: f64 = 500.0;
/// Less than one of so many requests fails.
const FAILED_OF: u64 = 1000;

/// How a scenario was run, and what happened besides the requests.
#[derive(Debug)]
pub struct Conditions {
    pub scenario: Scenario,
    pub protocol: Protocol,
    pub scale: f64,
    pub think: Duration,
    /// The limit of open files of a process.
    pub files: u64,
    /// The elections while it ran.
    pub elections: Option<u64>,
    /// Users whose requests all failed.
    pub unserved_users: u32,
}

/// The figures of the requests of a stage, or of all.
#[derive(Debug, Serialize)]
struct Figures {
    requests: u64,
    answered: u64,
    rate_per_s: f64,
    p50_ms: f64,
    p90_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    failed: BTreeMap<String, u64>,
}

impl Figures {
    fn new(seen: &StageTally, seconds: f64) -> Self {
        let quantile = |share| ms(seen.times.quantile_us(share) / 1e3);
        Self {
            requests: seen.requests(),
            answered: seen.answered(),
            rate_per_s: (seen.answered() as f64 / seconds.max(1e-9)).round(),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: ms(seen.times.max_us() / 1e3),
            failed: seen.failed.clone(),
        }
    }
}

fn ms(time: f64) -> f64 {
    (time * 1e3).round() / 1e3
}

/// The line of a stage.
pub fn line(plan: &Plan, stage: usize, seen: &StageTally) -> String {
    let Some(stage) = plan.stages.get(stage) else { return String::new() };
    let figures = Figures::new(seen, stage.seconds);
    let failed: Vec<String> =
        figures.failed.iter().map(|(class, count)| format!("{count} {class}")).collect();
    format!(
        "  {:17} {:>6.1} s, to {:>6} users: {:>9} requests {:>8.0}/s  p50 {:>7.2} ms  p99 {:>7.2} ms  \
         max {:>7.1} ms  failed {}",
        stage.name,
        stage.seconds,
        plan.users_after(stage),
        figures.requests,
        figures.rate_per_s,
        figures.p50_ms,
        figures.p99_ms,
        figures.max_ms,
        if failed.is_empty() { "0".to_owned() } else { failed.join(", ") },
    )
}

/// Why the mark was missed; nothing if it was not.
fn missed(all: &StageTally, checked: &HistoryCheck, unserved_users: u32) -> Vec<String> {
    let mut missed = Vec::new();
    let p99 = all.times.quantile_us(0.99) / 1e3;
    if all.answered() == 0 {
        missed.push("no request was answered".to_owned());
    }
    if p99 >= P99_MS {
        missed.push(format!("P99 is {p99:.0} ms, and not below {P99_MS:.0} ms"));
    }
    let (failures, requests) = (all.failures(), all.requests());
    if failures > 0 && failures.saturating_mul(FAILED_OF) >= requests {
        missed.push(format!("{failures} of {requests} requests failed: 0.1 % or more"));
    }
    // Users that wait in vain send few requests, so the share of these says little about them.
    if unserved_users > 0 {
        missed.push(format!("{unserved_users} users got no timestamp at all"));
    }
    if let Some(violation) = checked.violation {
        missed.push(violation.to_string());
    }
    missed
}

#[derive(Serialize)]
struct StageFigures {
    name: &'static str,
    seconds: f64,
    /// The users at the end of the stage.
    users: u32,
    #[serde(flatten)]
    figures: Figures,
}

/// The result of a scenario over one protocol.
#[derive(Serialize)]
pub struct Outcome {
    scenario: &'static str,
    protocol: &'static str,
    users: u32,
    users_of_scenario: u32,
    think_ms: u64,
    scale: f64,
    cores: usize,
    open_files: u64,
    elections: Option<u64>,
    unserved_users: u32,
    stages: Vec<StageFigures>,
    #[serde(flatten)]
    figures: Figures,
    /// The timestamps that were compared.
    order_checked: u64,
    /// Whether these are not all.
    order_is_sample: bool,
    missed: Vec<String>,
    passed: bool,
}

impl Outcome {
    pub fn new(
        conditions: &Conditions,
        plan: &Plan,
        stages: &[StageTally],
        all: &StageTally,
        checked: &HistoryCheck,
    ) -> Self {
        let of_stages = plan.stages.iter().zip(stages).map(|(stage, seen)| StageFigures {
            name: stage.name,
            seconds: ms(stage.seconds),
            users: plan.users_after(stage),
            figures: Figures::new(seen, stage.seconds),
        });
        let seconds: f64 = plan.stages.iter().map(|stage| stage.seconds).sum();
        let missed = missed(all, checked, conditions.unserved_users);
        Self {
            scenario: conditions.scenario.name(),
            protocol: conditions.protocol.name(),
            users: plan.users,
            users_of_scenario: conditions.scenario.users(),
            think_ms: conditions.think.as_millis() as u64,
            scale: conditions.scale,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            open_files: conditions.files,
            elections: conditions.elections,
            unserved_users: conditions.unserved_users,
            stages: of_stages.collect(),
            figures: Figures::new(all, seconds),
            order_checked: checked.calls,
            order_is_sample: checked.calls < all.answered(),
            passed: missed.is_empty(),
            missed,
        }
    }

    /// Why the mark was missed; nothing if it was not.
    pub fn missed(self) -> Vec<String> {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answered: u64, ms: u64, failed: u64) -> StageTally {
        let mut seen = StageTally::new();
        for _ in 0..answered {
            seen.times.add(Duration::from_millis(ms));
        }
        if failed > 0 {
            seen.failed.insert("status 503".into(), failed);
        }
        seen
    }

    #[test]
    fn each_part_of_the_mark_can_be_missed() {
        let checked = HistoryCheck { calls: 1, violation: None };
        let count = |seen: &StageTally| missed(seen, &checked, 0).len();
        assert_eq!(count(&seen(9_991, 400, 9)), 0);
        assert_eq!(count(&seen(9_990, 400, 10)), 1);
        assert_eq!(count(&seen(1_000, 600, 0)), 1);
        assert_eq!(count(&seen(0, 0, 0)), 1);
        assert_eq!(count(&seen(0, 0, 10)), 2);
        assert_eq!(missed(&seen(9_991, 400, 9), &checked, 1).len(), 1);
        let call = esker_oracle::history::Call {
            called: 0,
            returned: 1,
            range: esker_oracle::Range {
                first: esker_oracle::Timestamp { epoch: 1, index: 0 },
                count: 1,
            },
        };
        let violation = esker_oracle::history::check(&[call]).err();
        assert_eq!(missed(&seen(10, 1, 0), &HistoryCheck { calls: 1, violation }, 0).len(), 1);
    }
}

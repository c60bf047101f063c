//! Results of the lab: one JSON object, or one line of a table, for each setting.

use std::io::Write;

use esker_lab::{Outcome as Crashed, Promise, Setting};
use serde::Serialize;

use esker_command::exit::{Failure, Outcome};
use esker_command::output;

/// The outcome of a setting.
#[derive(Debug, Serialize)]
struct Row {
    face: &'static str,
    policy: &'static str,
    instrument: &'static str,
    runs: u64,
    cuts: u64,
    /// Crashes whose writes were counted. Without any, there are no averages.
    recoveries: u64,
    violations: u64,
    loss_promised: Option<u64>,
    loss_seen: u64,
    loss_unit: &'static str,
    avg_durable: f64,
    avg_recovered: f64,
    avg_lost: f64,
    min_recovered: u64,
    max_recovered: u64,
    max_lost: u64,
    seconds: f64,
    /// The seed of its run, writes accepted, durable and recovered, of each crash.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    each: Vec<[u64; 4]>,
}

/// The lines of a table, or one JSON object for each setting.
#[derive(Debug)]
pub struct Table {
    json: bool,
    /// Whether an object lists what each crash left.
    each: bool,
    violations: u64,
}

impl Table {
    /// Prints the title and the names of the columns.
    pub fn begin(title: &str, json: bool, each: bool) -> Outcome<Self> {
        if !json {
            output::print(&format!("{title}\n{}\n", Row::header()))?;
        }
        Ok(Self { json, each, violations: 0 })
    }

    /// Prints what a setting came to, and names its violations on standard error.
    pub fn add(&mut self, setting: &Setting, crashed: &Crashed, seconds: f64) -> Outcome {
        let Setting { instrument, component, policy, .. } = *setting;
        let mut row = Row::new(setting, crashed, seconds);
        if self.each {
            row.each = crashed
                .crashes
                .iter()
                .map(|(seed, survival)| {
                    [*seed, survival.accepted, survival.durable, survival.recovered]
                })
                .collect();
        }
        if self.json {
            output::print_json(&row)?;
        } else {
            output::print(&format!("{}\n", row.line()))?;
        }
        let mut err = std::io::stderr().lock();
        for violation in &crashed.examples {
            let (seed, what) = (violation.seed, &violation.what);
            let _ = writeln!(
                err,
                "{component} {policy}: {what}\n  again: esker-lab {} --component {component} \
                 --policy {policy} --seed {seed}",
                command(instrument)
            );
        }
        let more = crashed.violations - crashed.examples.len() as u64;
        if more > 0 {
            let _ = writeln!(err, "{component} {policy}: {more} more");
        }
        self.violations += crashed.violations;
        Ok(())
    }

    /// Fails if a run broke a promise.
    pub fn end(self) -> Outcome {
        match self.violations {
            0 => Ok(()),
            violations => Err(Failure::failed(format!("{violations} runs broke a promise"))),
        }
    }
}

/// The command that has this instrument.
fn command(instrument: &str) -> &str {
    match instrument {
        "power" | "kill" => instrument,
        _ => "faults",
    }
}

impl Row {
    fn new(setting: &Setting, crashed: &Crashed, seconds: f64) -> Self {
        let statistics = &crashed.statistics;
        let round = |average: f64| (average * 100.0).round() / 100.0;
        let (loss_promised, loss_seen, loss_unit) = match setting.promise {
            Promise::NoLoss => (Some(0), statistics.max_lost, "records"),
            Promise::Calls(most) => (Some(most), statistics.max_lost, "records"),
            Promise::Age(most) => {
                let seen = statistics.max_lost_age.as_millis() as u64;
                (Some(most.as_millis() as u64), seen, "ms")
            }
            Promise::Nothing => (None, statistics.max_lost, "none"),
        };
        Self {
            face: setting.component,
            policy: setting.policy,
            instrument: setting.instrument,
            runs: statistics.runs,
            cuts: statistics.cuts,
            recoveries: statistics.recoveries,
            violations: crashed.violations,
            loss_promised,
            loss_seen,
            loss_unit,
            avg_durable: round(statistics.average(statistics.durable)),
            avg_recovered: round(statistics.average(statistics.recovered)),
            avg_lost: round(statistics.average(statistics.lost)),
            min_recovered: statistics.min_recovered,
            max_recovered: statistics.max_recovered,
            max_lost: statistics.max_lost,
            seconds: round(seconds),
            each: Vec::new(),
        }
    }

    fn header() -> String {
        format!(
            "{:<9} {:<12} {:<25} {:>7} {:>8} {:>10} {:>11} {:>13} {:>8} {:>8} {:>8} {:>8} {:>13} {:>8}",
            "Component",
            "Instrument",
            "Mode",
            "Runs",
            "Cuts",
            "Violations",
            "Avg Durable",
            "Avg Recovered",
            "Avg Lost",
            "Min Rec",
            "Max Rec",
            "Max Lost",
            "Loss promised",
            "seen"
        )
    }

    fn line(&self) -> String {
        let unit = if self.loss_unit == "ms" { " ms" } else { "" };
        let promised = self.loss_promised.map_or_else(|| "-".into(), |n| format!("{n}{unit}"));
        let counted = |text: String| if self.recoveries > 0 { text } else { "-".to_owned() };
        let average = |average: f64| counted(format!("{average:.2}"));
        format!(
            "{:<9} {:<12} {:<25} {:>7} {:>8} {:>10} {:>11} {:>13} {:>8} {:>8} {:>8} {:>8} {:>13} {:>8}",
            self.face,
            self.instrument,
            self.policy,
            self.runs,
            self.cuts,
            self.violations,
            average(self.avg_durable),
            average(self.avg_recovered),
            average(self.avg_lost),
            counted(self.min_recovered.to_string()),
            counted(self.max_recovered.to_string()),
            counted(self.max_lost.to_string()),
            promised,
            counted(format!("{}{unit}", self.loss_seen)),
        )
    }
}

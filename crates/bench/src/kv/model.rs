//! The model of the experiment beside the measurement:
//!
//! > throughput = 1 / (`T_write` + `T_fsync` / N)
//!
//! N is the number of puts for each sync. For `always` it is 1, for `batch:n` n. A period has no N
//! of its own, so the measured puts for each sync are used, and the mode is predicted but not
//! fitted.
//!
//! `T_write` and `T_fsync` are those with the least sum of squared relative errors over the fitted
//! modes. The model knows one caller that stops for each sync. The store syncs while it accepts the
//! next puts, so the fit may be bad. It is printed as it is. A mode with few syncs shows chance
//! instead, and nothing is fitted to it.

use std::fmt::Write;

use esker_kv::Policy;
use serde_json::{Map, Value, json};

use super::csv;
use super::run_length::SYNCS_MIN;
use super::store_callers::TimedPart;
use crate::measure::figure::rounded;
use crate::measure::keys::keys;
use crate::measure::latency::Latencies;
use esker_command::output::counted;
use esker_command::quantity;

/// A measured mode.
#[derive(Debug)]
pub struct Mode {
    policy: Policy,
    syncs: u64,
    /// Puts for each sync, and whether it is given and not measured.
    n: f64,
    given: bool,
    /// Microseconds for a put.
    us: f64,
    latencies: Latencies,
}

/// The fitted model, in microseconds.
#[derive(Debug)]
pub struct Model {
    write: f64,
    sync: f64,
    fitted: Vec<String>,
}

impl Mode {
    pub fn new(policy: Policy, timed: &TimedPart) -> Self {
        let given = match policy {
            Policy::Always => Some(1.0),
            Policy::Batch(n) => Some(n.get() as f64),
            _ => None,
        };
        Self {
            policy,
            syncs: timed.syncs,
            n: given.unwrap_or(timed.ops as f64 / timed.syncs.max(1) as f64),
            given: given.is_some(),
            us: timed.time.as_secs_f64() * 1e6 / timed.ops.max(1) as f64,
            latencies: timed.latencies.clone(),
        }
    }
}

/// The modes that a model is fitted to: those whose N is given, or all if there are fewer than two.
fn to_fit(modes: &[Mode]) -> Vec<&Mode> {
    let given: Vec<&Mode> = modes.iter().filter(|mode| mode.given).collect();
    if given.len() < 2 { modes.iter().collect() } else { given }
}

/// Why no model is fitted to these modes, if one of them has too few syncs.
pub fn too_short(modes: &[Mode]) -> Option<String> {
    let mode = to_fit(modes).into_iter().find(|mode| mode.syncs < SYNCS_MIN)?;
    Some(format!(
        "no model was fitted: {} had {}, and fewer than {SYNCS_MIN} show chance; measure longer, with --seconds or \
         --count",
        quantity::policy_name(mode.policy),
        counted(mode.syncs, "sync")
    ))
}

impl Model {
    /// Fits the model. `None` where N is the same everywhere.
    pub fn fit(modes: &[Mode]) -> Option<Self> {
        let fitted = to_fit(modes);
        let first = fitted.first()?.n;
        if fitted.iter().all(|mode| (mode.n / first - 1.0).abs() < 1e-6) {
            return None;
        }
        // With u = 1 / y and v = 1 / (N y), the relative error of a mode is
        // write * u + sync * v - 1.
        let (mut uu, mut uv, mut vv, mut u_sum, mut v_sum) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for mode in &fitted {
            let (u, v) = (1.0 / mode.us, 1.0 / (mode.n * mode.us));
            uu += u * u;
            uv += u * v;
            vv += v * v;
            u_sum += u;
            v_sum += v;
        }
        let determinant = uu * vv - uv * uv;
        let mut write = (u_sum * vv - v_sum * uv) / determinant;
        let mut sync = (v_sum * uu - u_sum * uv) / determinant;
        // No time is negative.
        if write < 0.0 {
            (write, sync) = (0.0, v_sum / vv);
        } else if sync < 0.0 {
            (write, sync) = (u_sum / uu, 0.0);
        }
        let fitted = fitted.iter().map(|mode| quantity::policy_name(mode.policy)).collect();
        Some(Self { write, sync, fitted })
    }

    /// Puts per second.
    fn predicted(&self, mode: &Mode) -> f64 {
        1e6 / (self.write + self.sync / mode.n)
    }

    fn error_percent(&self, mode: &Mode) -> f64 {
        (self.predicted(mode) * mode.us / 1e6 - 1.0) * 100.0
    }

    /// A put that takes half a sync waited for one.
    fn waits_from(&self) -> f64 {
        self.sync / 2.0
    }

    /// Whether the 99th percentile is a put that waits for a sync: predicted, and measured.
    fn slow_path(&self, mode: &Mode) -> (bool, bool) {
        (mode.n <= 100.0, mode.latencies.quantile_us(0.99) >= self.waits_from())
    }

    /// The keys of `kv/model`.
    pub fn keys(&self, mode: &Mode) -> Map<String, Value> {
        let (predicted, measured) = self.slow_path(mode);
        keys([
            ("puts_per_sync", json!(rounded(mode.n, 1))),
            ("t_write_us", json!(rounded(self.write, 3))),
            ("t_fsync_us", json!(rounded(self.sync, 2))),
            ("fitted_to", json!(self.fitted)),
            ("predicted_per_s", json!(rounded(self.predicted(mode), 1))),
            ("measured_per_s", json!(rounded(1e6 / mode.us, 1))),
            ("error_percent", json!(rounded(self.error_percent(mode), 1))),
            ("p99_slow_path_predicted", json!(predicted)),
            ("p99_slow_path_measured", json!(measured)),
            ("slow_part", json!(rounded(mode.latencies.share_from(self.waits_from()), 6))),
        ])
    }

    /// The table for people.
    pub fn table(&self, modes: &[Mode]) -> String {
        let mut text = format!(
            "model: puts/s = 1 / (T_write + T_fsync / N), T_write {:.3} us, T_fsync {:.1} us, the least \
             squared relative errors over {}\n  {:<16} {:>9} {:>12} {:>12} {:>8}  {:<20} {:>9}\n",
            self.write,
            self.sync,
            self.fitted.join(", "),
            "mode",
            "N",
            "predicted/s",
            "measured/s",
            "error",
            "p99 waits for a sync",
            "that wait"
        );
        for mode in modes {
            let (predicted, measured) = self.slow_path(mode);
            let waits = match (predicted, measured) {
                (true, true) => "yes, as predicted",
                (false, false) => "no, as predicted",
                (true, false) => "no, predicted yes",
                (false, true) => "yes, predicted no",
            };
            let _ = writeln!(
                text,
                "  {:<16} {:>9.1} {:>12.0} {:>12.0} {:>7.1}%  {waits:<20} {:>8.3}%",
                csv::mode(mode.policy),
                mode.n,
                self.predicted(mode),
                1e6 / mode.us,
                self.error_percent(mode),
                mode.latencies.share_from(self.waits_from()) * 100.0,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use super::*;

    fn mode(policy: Policy, n: f64, us: f64) -> Mode {
        let given = !matches!(policy, Policy::Periodic(_));
        let mut latencies = Latencies::new();
        latencies.add(Duration::from_micros(2));
        Mode { policy, syncs: SYNCS_MIN, n, given, us, latencies }
    }

    fn batch(n: u64, us: f64) -> Mode {
        mode(Policy::Batch(NonZeroU64::new(n).unwrap()), n as f64, us)
    }

    fn is_near(value: f64, wanted: f64) -> bool {
        (value / wanted - 1.0).abs() < 1e-3
    }

    #[test]
    fn a_store_that_follows_the_model_is_fitted_without_an_error() {
        let us = |n: f64| 1.5 + 276.0 / n;
        let period = mode(Policy::Periodic(Duration::from_millis(10)), 5000.0, 3.0);
        let modes = [
            mode(Policy::Always, 1.0, us(1.0)),
            batch(100, us(100.0)),
            batch(1000, us(1000.0)),
            period,
        ];
        let model = Model::fit(&modes).unwrap();
        assert!(is_near(model.write, 1.5) && is_near(model.sync, 276.0), "{model:?}");
        for mode in &modes[..3] {
            assert!(model.error_percent(mode).abs() < 0.1, "{model:?}");
        }
        // It is not fitted, and its error is reported: predicted are 1.5 + 276 / 5000 us, not 3.
        let keys = model.keys(&modes[3]);
        assert!(is_near(keys["error_percent"].as_f64().unwrap(), 92.9), "{keys:?}");
        assert!(model.table(&modes).contains("92.9%"), "{}", model.table(&modes));
        assert_eq!(keys["p99_slow_path_predicted"], false);
        assert_eq!(model.keys(&modes[1])["p99_slow_path_predicted"], true);
    }

    /// The figures of the seed: its model has errors of 40 and 50 %.
    #[test]
    fn a_bad_fit_is_reported() {
        let modes = [
            mode(Policy::Always, 1.0, 1e6 / 3387.0),
            batch(100, 1e6 / 167_884.0),
            batch(1000, 1e6 / 373_749.0),
        ];
        let model = Model { write: 1.5, sync: 276.0, fitted: Vec::new() };
        let errors: Vec<_> = modes.iter().map(|mode| model.error_percent(mode).round()).collect();
        assert_eq!(errors, [6.0, 40.0, 51.0]);
        let errors = modes.iter().map(|mode| Model::fit(&modes).unwrap().error_percent(mode).abs());
        assert!(errors.fold(0.0, f64::max) > 5.0);
    }

    /// A model was fitted to two syncs.
    #[test]
    fn nothing_is_fitted_to_a_mode_with_few_syncs() {
        let mut modes = [mode(Policy::Always, 1.0, 277.0), batch(100, 4.0)];
        assert_eq!(too_short(&modes), None);
        modes[1].syncs = SYNCS_MIN - 1;
        let why = too_short(&modes).unwrap();
        assert!(why.contains("batch:100 had 99 syncs") && why.contains("--seconds"), "{why}");
        // What is not fitted may have any number.
        let period = Mode { given: false, syncs: 1, ..batch(9, 3.0) };
        assert_eq!(too_short(&[batch(10, 9.0), batch(100, 4.0), period]), None);
    }

    #[test]
    fn no_time_is_negative_and_one_n_is_no_model() {
        let faster = [mode(Policy::Always, 1.0, 100.0), batch(100, 0.5)];
        let model = Model::fit(&faster).unwrap();
        assert!(model.write == 0.0 && model.sync > 0.0, "{model:?}");
        assert!(Model::fit(&[mode(Policy::Always, 1.0, 100.0)]).is_none());
    }
}

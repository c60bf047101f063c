//! The recorded figures.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// All lines of the file.
#[derive(Debug)]
pub struct Results {
    lines: Vec<Value>,
}

/// A figure of one policy: a line.
#[derive(Debug, Clone, Copy)]
pub struct Figure<'a>(pub &'a Value);

impl Results {
    pub fn parse(text: &str) -> Result<Self> {
        let lines: Vec<Value> =
            text.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        ensure!(lines.iter().all(|line| line["verified"] == true), "a result was not verified");
        Ok(Self { lines })
    }

    /// The figures of a set and a benchmark, in the order of the run.
    pub fn figures(&self, set: &str, bench: &str) -> Vec<Figure<'_>> {
        let wanted = |line: &&Value| line["set"] == set && line["bench"] == bench;
        self.lines.iter().filter(wanted).map(Figure).collect()
    }

    /// The puts of a policy in a set.
    pub fn put(&self, set: &str, policy: &str) -> Result<Figure<'_>> {
        self.one(set, "kv/put", policy)
    }

    /// The model of a policy in a set.
    pub fn model(&self, set: &str, policy: &str) -> Result<Figure<'_>> {
        self.one(set, "kv/model", policy)
    }

    fn one(&self, set: &str, bench: &str, policy: &str) -> Result<Figure<'_>> {
        let mut figures = self.figures(set, bench).into_iter();
        let found = figures.find(|figure| figure.policy() == policy);
        found.with_context(|| format!("no {bench} of {policy} in the set {set}"))
    }
}

impl Figure<'_> {
    pub fn policy(&self) -> &str {
        self.0["params"]["policy"].as_str().unwrap_or_default()
    }

    /// A number; a point leads to one inside an object.
    pub fn number(&self, key: &str) -> Result<f64> {
        let found = key.split('.').fold(self.0, |value, part| &value[part]);
        found.as_f64().with_context(|| format!("no number {key} of {}", self.policy()))
    }

    pub fn is(&self, key: &str) -> bool {
        self.0[key] == true
    }

    pub fn per_s(&self) -> Result<f64> {
        self.number("ops_per_s")
    }

    /// The largest loss at a crash, in records and in milliseconds at this rate: the period and one
    /// sync, or the records that are accepted beside a commit.
    pub fn loss(&self) -> Result<Loss> {
        let sync_ms = self.number("floor.sync_p50_us")? / 1e3;
        let per_ms = self.per_s()? / 1e3;
        Ok(match self.policy().split_once(':') {
            Some(("batch", n)) => {
                let records = 2.0 * n.parse::<f64>()? - 1.0;
                Loss { records, ms: records / per_ms }
            }
            Some(("periodic", ms)) => {
                let ms = ms.parse::<f64>()? + sync_ms;
                Loss { records: ms * per_ms, ms }
            }
            _ => Loss { records: 0.0, ms: 0.0 },
        })
    }
}

/// The largest loss at a crash.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    pub records: f64,
    pub ms: f64,
}

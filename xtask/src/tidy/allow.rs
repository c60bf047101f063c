//! `xtask/tidy-allow.toml`: exceptions, each with its reason.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::finding::Finding;

pub const FILE: &str = "xtask/tidy-allow.toml";
const RULE: &str = "allow";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    rule: String,
    /// A file, or with a slash at its end everything below a folder.
    path: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    allow: Vec<Entry>,
}

pub fn parse(text: &str) -> Result<Vec<Entry>> {
    let document: Document = toml::from_str(text).context(FILE)?;
    for entry in &document.allow {
        ensure!(!entry.reason.trim().is_empty(), "{FILE}: {} has no reason", entry.path);
    }
    Ok(document.allow)
}

impl Entry {
    pub fn covers(&self, finding: &Finding) -> bool {
        let path = &finding.path;
        let below = self.path.ends_with('/') && path.starts_with(&self.path);
        self.rule == finding.rule && (below || *path == self.path)
    }
}

/// Warns of exceptions that cover nothing.
pub fn unused(entries: &[Entry], findings: &[Finding]) -> Vec<Finding> {
    let unused = entries.iter().filter(|entry| !findings.iter().any(|found| entry.covers(found)));
    let message = |entry: &Entry| format!("{} needs no exception to {}", entry.path, entry.rule);
    unused.map(|entry| Finding::warning(RULE, FILE, 0, message(entry))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[allow]]\nrule = 'text'\npath = 'crates/cli/src/bench/'\nreason = 'why'\n";

    #[test]
    fn covers_its_rule_below_its_path() {
        let entry = &parse(TEXT).unwrap()[0];
        assert!(entry.covers(&Finding::error("text", "crates/cli/src/bench/floor.rs", 1, "")));
        assert!(!entry.covers(&Finding::error("names", "crates/cli/src/bench/floor.rs", 1, "")));
        assert!(!entry.covers(&Finding::error("text", "crates/cli/src/bench.rs", 1, "")));
    }

    #[test]
    fn wants_a_reason() {
        assert!(parse(&TEXT.replace("why", " ")).is_err());
        assert!(parse(&TEXT.replace("reason = 'why'\n", "")).is_err());
    }

    #[test]
    fn warns_of_what_covers_nothing() {
        let entries = parse(TEXT).unwrap();
        let found = |path: &str| [Finding::error("text", path, 1, "")];
        assert_eq!(unused(&entries, &found("crates/cli/src/main.rs")).len(), 1);
        assert_eq!(unused(&entries, &found("crates/cli/src/bench/a.rs")), []);
    }
}

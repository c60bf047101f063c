//! `xtask/tidy-allow.toml`: exceptions, each with its reason.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::finding::Finding;
use super::tree::Tree;

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
        self.rule == finding.rule && self.matches(&finding.path)
    }

    fn matches(&self, path: &str) -> bool {
        path == self.path || (self.path.ends_with('/') && path.starts_with(&self.path))
    }
}

/// Warns of exceptions for files that are not there.
pub fn unused(tree: &Tree, entries: &[Entry]) -> Vec<Finding> {
    entries
        .iter()
        .filter(|entry| !tree.files().any(|(path, _)| entry.matches(path)))
        .map(|entry| Finding::warning(RULE, FILE, 0, format!("{} names no file", entry.path)))
        .collect()
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
        assert_eq!(unused(&Tree::of(&[("crates/cli/src/main.rs", "")]), &entries).len(), 1);
        assert!(unused(&Tree::of(&[("crates/cli/src/bench/a.rs", "")]), &entries).is_empty());
    }
}

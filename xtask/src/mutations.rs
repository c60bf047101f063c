//! Parses `docs/mutations.toml`: the mutations that tests must catch.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Where the mutations are listed, from the root.
pub const FILE: &str = "docs/mutations.toml";

/// The time limit of a mutation's test, unless the mutation sets its own.
const LIMIT_S: u64 = 300;
const LIMIT_S_MAX: u64 = 3600;

/// One small edit of the source, and the test that has to catch it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    pub id: String,
    pub file: String,
    pub find: String,
    pub replace: String,
    /// Arguments of `cargo test`.
    pub test: String,
    #[serde(default)]
    pub requirements: Vec<String>,
    /// Has to occur in the output of the failing test.
    pub expect: Option<String>,
    /// Whether running into the time limit counts as caught.
    #[serde(default)]
    pub hang: bool,
    #[serde(default = "limit_s")]
    pub limit_s: u64,
    /// Environment of the build and of the test.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    mutation: Vec<Mutation>,
}

fn limit_s() -> u64 {
    LIMIT_S
}

/// Reads the list and checks each entry by itself.
pub fn parse(text: &str) -> Result<Vec<Mutation>> {
    let document: Document = toml::from_str(text).context(FILE)?;
    let mut ids = BTreeSet::new();
    for mutation in &document.mutation {
        let id = &mutation.id;
        ensure!(!id.is_empty(), "{FILE}: a mutation has no id");
        ensure!(ids.insert(id), "{FILE}: the id {id} is there twice");
        ensure!(!mutation.find.is_empty(), "{FILE}: {id}: `find` is empty");
        ensure!(mutation.find != mutation.replace, "{FILE}: {id}: `replace` changes nothing");
        ensure!(
            (1..=LIMIT_S_MAX).contains(&mutation.limit_s),
            "{FILE}: {id}: `limit_s` has to lie between 1 and {LIMIT_S_MAX}"
        );
    }
    Ok(document.mutation)
}

impl Mutation {
    /// `text` with the mutation in it.
    pub fn applied_to(&self, text: &str) -> Result<String> {
        let found = text.matches(&self.find).count();
        ensure!(
            found == 1,
            "mutation {}: `find` occurs {found} times in {}, and has to occur once",
            self.id,
            self.file
        );
        Ok(text.replacen(&self.find, &self.replace, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "[[mutation]]\nid = 'a'\nfile = 'x.rs'\nfind = 'yes'\nreplace = 'no'\ntest = ''\n";

    #[test]
    fn applies_once_or_not_at_all() {
        let mutation = &parse(ONE).unwrap()[0];
        assert_eq!(mutation.applied_to("if yes {}").unwrap(), "if no {}");
        let twice = mutation.applied_to("yes yes").unwrap_err().to_string();
        assert!(twice.contains("mutation a") && twice.contains("2 times"), "{twice}");
        assert!(mutation.applied_to("maybe").is_err());
    }

    #[test]
    fn refuses_what_proves_nothing() {
        assert!(parse(&format!("{ONE}{ONE}")).is_err(), "the same id twice");
        assert!(parse(&ONE.replace("'no'", "'yes'")).is_err(), "no change");
        assert!(parse(&ONE.replace("'yes'", "''")).is_err(), "finds everything");
        assert!(parse(&format!("{ONE}limit_s = 0\n")).is_err(), "no time to run");
        assert!(parse(&format!("{ONE}tset = 'x'\n")).is_err(), "a misspelt key");
    }

    #[test]
    fn an_empty_list_is_a_list() {
        assert!(parse("# nothing yet\n").unwrap().is_empty());
    }
}

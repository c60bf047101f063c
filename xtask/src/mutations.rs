//! Parses `crates/CRATE/mutations.toml`: the mutations that the crate's tests must catch.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Deserialize;

/// The name of a crate's list, in the folder of the crate.
pub const FILE: &str = "mutations.toml";

/// A crate's mutations by their names.
pub type Mutations = BTreeMap<String, Mutation>;

/// A small edit of the source, and the test that has to catch it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// The mutated file, from the folder of the crate.
    pub file: String,
    pub old: String,
    pub new: String,
    pub test: TestPath,
}

/// A test by its file, from the folder of the crate that lists the mutation, and its name:
/// `tests/crash/policies.rs::NAME`, `src/record.rs::NAME`,
/// `../kv/tests/store/watch.rs::NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct TestPath {
    pub file: String,
    pub name: String,
    /// The folder of the test's package, relative like `file`.
    pub package: String,
    pub target: Target,
    /// The modules of the file in its target.
    modules: Vec<String>,
}

/// The target that cargo builds for a test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The unit tests of the library.
    Lib,
    /// A binary of integration tests.
    Test(String),
}

/// Reads a list and checks each entry by itself. The parser refuses two mutations of one name.
pub fn parse(text: &str) -> Result<Mutations> {
    let mutations: Mutations = toml::from_str(text)?;
    for (name, mutation) in &mutations {
        ensure!(!mutation.old.is_empty(), "{name}: `old` is empty");
        ensure!(mutation.old != mutation.new, "{name}: `new` changes nothing");
    }
    Ok(mutations)
}

impl Mutation {
    /// `text` with the mutation in it.
    pub fn applied_to(&self, text: &str) -> Result<String> {
        let found = text.matches(&self.old).count();
        ensure!(found == 1, "`old` occurs {found} times in {}, and has to occur once", self.file);
        Ok(text.replacen(&self.old, &self.new, 1))
    }
}

impl TryFrom<String> for TestPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text} is not of the form tests/FILE.rs::NAME"))
    }
}

impl TestPath {
    fn parse(text: &str) -> Option<Self> {
        let (file, name) = text.split_once("::")?;
        let parts: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
        let root = parts.iter().position(|part| matches!(*part, "src" | "tests"))?;
        let (target, modules) = match parts.get(root + 1..)? {
            modules if parts.get(root) == Some(&"src") => (Target::Lib, modules),
            [binary, modules @ ..] => (Target::Test((*binary).to_owned()), modules),
            [] => return None,
        };
        let mut modules: Vec<_> = modules.iter().map(|module| (*module).to_owned()).collect();
        modules.pop_if(|last| matches!(last.as_str(), "lib" | "main" | "mod"));
        Some(Self {
            file: file.to_owned(),
            name: name.to_owned(),
            package: parts.get(..root)?.join("/"),
            target,
            modules,
        })
    }

    /// The names that the test may have in its target: in the module of its file, or in the module
    /// `tests` there.
    pub fn candidates(&self) -> [String; 2] {
        let modules: String = self.modules.iter().map(|module| format!("{module}::")).collect();
        [format!("{modules}{}", self.name), format!("{modules}tests::{}", self.name)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[a]\nfile = 'x.rs'\nold = 'yes'\nnew = 'no'\ntest = 'tests/b.rs::c'\n";

    #[test]
    fn applies_once_or_not_at_all() {
        let mutation = &parse(ONE).unwrap()["a"];
        assert_eq!(mutation.applied_to("if yes {}").unwrap(), "if no {}");
        let twice = mutation.applied_to("yes yes").unwrap_err().to_string();
        assert!(twice.contains("2 times in x.rs"), "{twice}");
        assert!(mutation.applied_to("maybe").is_err());
    }

    #[test]
    fn refuses_what_proves_nothing() {
        assert!(parse(&format!("{ONE}{ONE}")).is_err(), "the same name twice");
        assert!(parse(&ONE.replace("'no'", "'yes'")).is_err(), "no change");
        assert!(parse(&ONE.replace("'yes'", "''")).is_err(), "finds everything");
        assert!(parse(&ONE.replace("::c", "")).is_err(), "no test");
        assert!(parse(&format!("{ONE}tset = 'x'\n")).is_err(), "a misspelt key");
    }

    #[test]
    fn a_test_has_a_package_a_target_and_a_name() {
        let path = |text: &str| TestPath::parse(text).unwrap();
        let own = path("tests/crash/policies.rs::kept");
        assert_eq!((own.package.as_str(), &own.target), ("", &Target::Test("crash".into())));
        assert_eq!(own.candidates()[0], "policies::kept");
        assert_eq!(path("tests/crash/main.rs::kept").candidates()[0], "kept");
        assert_eq!(path("tests/crash.rs::kept").candidates()[0], "kept");
        assert_eq!(path("../kv/tests/store/watch.rs::kept").package, "../kv");
        let unit = path("src/format/mod.rs::kept");
        assert_eq!(
            (&unit.target, unit.candidates()[1].as_str()),
            (&Target::Lib, "format::tests::kept")
        );
    }
}

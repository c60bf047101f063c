//! Rules of the project that the compiler does not check, one per file.
//!
//! A rule is a pure function of a path and a text, or of the whole [`Tree`] where it compares
//! files, and has a test that shows it failing. Rules read the code as text: they catch
//! mistakes, not intent.

mod allow;
mod cited_tests;
mod code_map;
mod durable_calls;
mod experiment;
mod finding;
mod imports;
mod layers;
mod length;
mod links;
mod lints;
mod modules;
mod mutation_list;
mod names;
mod phrases;
mod source;
mod text;
pub mod tree;
mod unsafe_files;
mod vocabulary;

use std::path::Path;

use anyhow::Result;

use finding::Finding;
use tree::Tree;

/// A rule over one file.
type FileRule = fn(path: &str, text: &str) -> Vec<Finding>;
/// A rule over all of them.
type TreeRule = fn(tree: &Tree) -> Vec<Finding>;

const FILE_RULES: [FileRule; 9] = [
    durable_calls::check,
    layers::check,
    unsafe_files::check,
    length::check,
    lints::check,
    text::check,
    names::check,
    vocabulary::check,
    phrases::check,
];
const TREE_RULES: [TreeRule; 6] = [
    mutation_list::check,
    links::check,
    cited_tests::check,
    code_map::check,
    modules::check,
    experiment::check,
];

/// Checks the tree at `root` and prints what was found; `false` if anything has to change.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let allowed = allow::parse(tree.text(allow::FILE).unwrap_or_default())?;
    let mut findings = findings(&tree);
    findings.retain(|finding| !allowed.iter().any(|entry| entry.covers(finding)));
    findings.extend(allow::unused(&tree, &allowed));

    findings.iter().for_each(|finding| println!("{finding}"));
    let failed = findings.iter().filter(|finding| finding.fails).count();
    println!(
        "tidy: {} files, {failed} errors, {} warnings",
        tree.files().count(),
        findings.len() - failed
    );
    Ok(failed == 0)
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        findings.extend(FILE_RULES.iter().flat_map(|rule| rule(path, text)));
    }
    findings.extend(TREE_RULES.iter().flat_map(|rule| rule(tree)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_called() {
        let tree = Tree::of(&[
            ("crates/kv/Cargo.toml", "[dependencies]\nesker-cli.workspace = true\n"),
            ("crates/kv/src/utils.rs", "fn told() { unsafe { fsync() } } \n"),
            ("crates/kv/src/circle.rs", "use crate::long;\n"),
            ("crates/kv/src/long.rs", &"use crate::circle;\n".repeat(801)),
            (
                "crates/kv/mutations.toml",
                "[a]\nfile='x.rs'\nold='b'\nnew='c'\ntest='tests/d.rs::e'\n",
            ),
            ("README.md", concat!("[gone](gone.md) is ", "told\n")),
            ("ARCHITECTURE.md", "\n"),
            ("docs/src/experiment.md", "<!-- generated: model -->\n"),
            ("docs/src/guarantees.md", "`log/tests/gone.rs::gone`\n"),
        ]);
        let found = findings(&tree);
        for rule in [
            "durable-calls",
            "layers",
            "unsafe-files",
            "length",
            "lints",
            "text",
            "names",
            "vocabulary",
            "phrases",
            "mutation-list",
            "links",
            "cited-tests",
            "code-map",
            "modules",
            "experiment",
        ] {
            assert!(found.iter().any(|finding| finding.rule == rule), "{rule} found nothing");
        }
    }
}

//! Rules of the project that the compiler does not check, one per file.
//!
//! A rule is a pure function of a path and a text, or of the whole [`Tree`] where it compares
//! files, and has a test that shows it failing. They catch mistakes, not intent.

mod allow;
mod cited_tests;
mod code_map;
mod columns;
mod documents;
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
mod shapes;
mod source;
mod text;
pub mod tree;
mod words;

use std::path::Path;

use anyhow::Result;
use cargo_metadata::MetadataCommand;

use finding::Finding;
use tree::Tree;

/// A rule over one file.
type FileRule = fn(path: &str, text: &str) -> Vec<Finding>;
/// A rule over all of them.
type TreeRule = fn(tree: &Tree) -> Vec<Finding>;

const FILE_RULES: [FileRule; 5] =
    [durable_calls::check, length::check, columns::check, lints::check, text::check];
const TREE_RULES: [TreeRule; 8] = [
    words::check,
    shapes::check,
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
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    findings.extend(layers::check(&metadata));
    let unused = allow::unused(&allowed, &findings);
    findings.retain(|finding| !allowed.iter().any(|entry| entry.covers(finding)));
    findings.extend(unused);

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
        let tree = Tree::from_files(&[
            (
                "xtask/words.toml",
                "[files]\nutils = 'a'\n[identifiers]\n[phrases]\n[openings]\n[types]\n",
            ),
            ("crates/kv/Cargo.toml", ""),
            ("crates/kv/src/utils.rs", &format!("fn a() {{ fsync() }} \n//{}\n", "-".repeat(100))),
            ("crates/kv/src/circle.rs", "use crate::long;\nfn of() {}\n"),
            ("crates/kv/src/long.rs", &"use crate::circle;\n".repeat(801)),
            (
                "crates/kv/mutations.toml",
                "[a]\nfile='x.rs'\nold='b'\nnew='c'\ntest='tests/d.rs::e'\n",
            ),
            ("README.md", "[gone](gone.md)\n"),
            ("ARCHITECTURE.md", "\n"),
            ("docs/src/experiment.md", "<!-- generated: model -->\n"),
            ("docs/src/guarantees.md", "`log/tests/gone.rs::gone`\n"),
        ]);
        let found = findings(&tree);
        for rule in [
            "durable-calls",
            "length",
            "columns",
            "lints",
            "text",
            "words",
            "shapes",
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

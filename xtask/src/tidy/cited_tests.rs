//! The tests that the guarantees cite exist.

use super::finding::Finding;
use super::tree::Tree;

const RULE: &str = "cited-tests";
const FILE: &str = "docs/src/guarantees.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let lines = tree.text(FILE).unwrap_or_default().lines().enumerate();
    let cited = lines.flat_map(|(index, line)| {
        let names = line.split('`').skip(1).step_by(2);
        names.filter_map(move |name| Some((index + 1, name.split_once(".rs::")?)))
    });
    let missing = cited.filter(|(_, (file, test))| {
        let text = tree.text(&format!("crates/{file}.rs"));
        !text.is_some_and(|text| text.contains(&format!("fn {test}(")))
    });
    missing
        .map(|(line, (file, test))| {
            let message = format!("there is no test {test} in crates/{file}.rs");
            Finding::error(RULE, FILE, line, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_cited_exists() {
        let found = |test: &str| {
            check(&Tree::of(&[
                (FILE, &format!("| a promise | `log/tests/a.rs::{test}` |\n")),
                ("crates/log/tests/a.rs", "#[test]\nfn it_holds() {}\n"),
            ]))
            .len()
        };
        assert_eq!((found("it_holds"), found("it_hold"), found("gone")), (0, 1, 1));
    }
}

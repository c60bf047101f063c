//! The tests that documents cite exist, and each promise of the guarantees cites one.
//!
//! A citation is a code span `path.rs::name`, with the path from the root or from `crates/`.

use super::finding::Finding;
use super::tree::Tree;

const RULE: &str = "cited-tests";
const DOCS: &str = "docs/";
const GUARANTEES: &str = "docs/src/guarantees.md";
/// The head of a table of promises.
const PROMISES: &str = "| promise | test";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents =
        tree.files().filter(|(path, _)| path.starts_with(DOCS) && path.ends_with(".md"));
    let mut findings: Vec<_> =
        documents.flat_map(|(path, text)| missing_tests(tree, path, text)).collect();
    findings.extend(tree.text(GUARANTEES).into_iter().flat_map(promises_without_a_test));
    findings
}

fn missing_tests(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let cited = lines.flat_map(|(at, line)| citations(line).map(move |cited| (at + 1, cited)));
    let missing = cited.filter(|(_, (file, test))| {
        let source = tree.text(file).or_else(|| tree.text(&format!("crates/{file}")));
        !source.is_some_and(|source| has_test(source, test))
    });
    let message = |file, test| format!("there is no test {test} in {file}");
    missing
        .map(|(line, (file, test))| Finding::error(RULE, path, line, message(file, test)))
        .collect()
}

/// The tests that a line cites: file and name.
fn citations(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.split_once("::").filter(|(file, _)| file.ends_with(".rs")))
}

/// Whether `source` has a function `name` below the attribute of a test.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let declared = |line: &str| {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        function.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    lines.iter().enumerate().filter(|(_, line)| declared(line)).any(|(at, _)| {
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with(['#', '/']));
        above.copied().any(|line| is_test(&line))
    })
}

fn promises_without_a_test(text: &str) -> Vec<Finding> {
    let mut in_table = false;
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        in_table = line.starts_with(PROMISES) || in_table && line.starts_with('|');
        let is_row = in_table && !line.starts_with(PROMISES) && !line.starts_with("|-");
        if is_row && citations(line).next().is_none() {
            findings.push(Finding::error(RULE, GUARANTEES, at + 1, "the promise cites no test"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "crates/log/tests/a.rs";
    const SOURCE: &str = "/// A sentence.\n#[test]\n#[ignore]\nfn it_holds() {}\n\nfn helper() {}\n\
                          #[tokio::test(flavor = \"a\")]\nasync fn it_is_awaited() {}\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Tree::from_files(&[(path, text), (TEST, SOURCE)]));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_test_that_is_cited_exists() {
        for name in ["it_holds", "it_is_awaited"] {
            for file in ["log/tests/a.rs", TEST] {
                assert_eq!(found("docs/src/kv.md", &format!("see `{file}::{name}`")), [""; 0]);
            }
        }
        for missing in ["a.rs::it_hold", "a.rs::gone", "a.rs::helper", "b.rs::it_holds"] {
            let found = found("docs/src/kv.md", &format!("\nsee `x` and `log/tests/{missing}`"));
            let (file, name) = missing.split_once("::").unwrap();
            let message = format!("docs/src/kv.md:2: there is no test {name} in log/tests/{file}");
            assert!(found.len() == 1 && found[0].contains(&message), "{found:?}");
        }
    }

    #[test]
    fn other_code_and_other_files_cite_nothing() {
        assert_eq!(found("docs/src/kv.md", "`Store::open`, `log/tests/b.rs`"), [""; 0]);
        assert_eq!(found("README.md", "`log/tests/b.rs::gone`"), [""; 0]);
    }

    #[test]
    fn each_promise_cites_a_test() {
        let row =
            |test: &str| format!("{PROMISES} |\n|---|---|\n| a promise | {test} |\n\n| a |\n");
        assert_eq!(found(GUARANTEES, &row("`log/tests/a.rs::it_holds`")), [""; 0]);
        let found = found(GUARANTEES, &row("`it_holds`"));
        assert!(
            found.len() == 1 && found[0].contains(":3: the promise cites no test"),
            "{found:?}"
        );
    }
}

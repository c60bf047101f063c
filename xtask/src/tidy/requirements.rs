//! `docs/requirements.md` names tests and mutations that exist.
//!
//! A row is `| id | test | how it was seen failing |`. A test is `file.rs::name` in backticks; a
//! mutation is `mutation:NAME`. A requirement that a decision replaced links to a page of
//! `docs/decisions` instead of naming a test.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::source;
use super::tree::Tree;
use crate::mutations;

const RULE: &str = "requirements";
const FILE: &str = "docs/requirements.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(FILE) else { return Vec::new() };
    // A list that cannot be read is the finding of another rule.
    let mutations =
        mutations::parse(tree.text(mutations::FILE).unwrap_or_default()).unwrap_or_default();
    let mutations: BTreeSet<String> = mutations.into_iter().map(|mutation| mutation.id).collect();
    let has_test = |file: &str, name: &str| has_test(tree, file, name);
    rows(text, &has_test, &|mutation| mutations.contains(mutation))
}

fn rows(
    text: &str,
    has_test: &dyn Fn(&str, &str) -> bool,
    has_mutation: &dyn Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut ids = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else { continue };
        let mut found =
            |message: String| findings.push(Finding::error(RULE, FILE, index + 1, message));
        let [id, test, seen] = cells[..] else {
            found(format!("a row has 3 cells, and this one {}", cells.len()));
            continue;
        };
        if !ids.insert(id) {
            found(format!("{id} has a row already"));
        }
        let tests: Vec<_> = in_backticks(test).filter_map(|item| item.split_once("::")).collect();
        let replaced = test.contains("](decisions/");
        if tests.is_empty() && !replaced {
            found(format!("{id} names no test as `file.rs::name`"));
        }
        for (file, name) in tests {
            if !has_test(file, name) {
                found(format!("{id}: there is no `fn {name}` in a file {file}"));
            }
        }
        if seen.is_empty() && !replaced {
            found(format!("{id} does not say how its test was seen failing"));
        }
        for mutation in named_mutations(seen).filter(|mutation| !has_mutation(mutation)) {
            found(format!("{id}: {} has no mutation {mutation}", mutations::FILE));
        }
    }
    findings
}

/// The cells of a table's row; `None` for other lines, and for the head of the table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<_> = inner.split('|').map(str::trim).collect();
    let rule = cells.iter().all(|cell| cell.chars().all(|c| c == '-' || c == ':'));
    (!rule && cells[0] != "id").then_some(cells)
}

fn in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn named_mutations(cell: &str) -> impl Iterator<Item = &str> {
    cell.split("mutation:").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// Whether a file whose path ends with `file` has a function that is called `name`, which may
/// follow modules.
fn has_test(tree: &Tree, file: &str, name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap_or(name);
    let ending = format!("/{file}");
    tree.files()
        .filter(|(path, _)| path.ends_with(".rs") && (*path == file || path.ends_with(&ending)))
        .any(|(_, text)| !source::lines_with_word(text, &format!("fn {name}")).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "| id | test | how it was seen failing |\n|---|---|---|\n";

    fn found(row: &str) -> Vec<String> {
        let tree = Tree::of(&[
            (FILE, &format!("# Title\n\n{HEAD}{row}\n")),
            ("crates/log/tests/crash.rs", "#[test]\nfn nothing_lost() {}\n"),
            (
                mutations::FILE,
                "[[mutation]]\nid='no-sync'\nfile='x.rs'\nfind='a'\nreplace='b'\ntest=''\n",
            ),
        ]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_test_that_is_gone_is_found() {
        assert_eq!(found("| W-1 | `crash.rs::gone` | mutation:no-sync |").len(), 1);
        assert_eq!(found("| W-1 | `other.rs::nothing_lost` | mutation:no-sync |").len(), 1);
        assert_eq!(found("| W-1 | `crash.rs::nothing` | mutation:no-sync |").len(), 1);
    }

    #[test]
    fn a_mutation_that_is_gone_is_found() {
        assert_eq!(found("| W-1 | `crash.rs::nothing_lost` | `mutation:gone` |").len(), 1);
    }

    #[test]
    fn an_unproved_row_is_found() {
        assert_eq!(found("| W-1 | | mutation:no-sync |").len(), 1);
        assert_eq!(found("| W-1 | `crash.rs::nothing_lost` | |").len(), 1);
        assert_eq!(found("| W-1 | `crash.rs::nothing_lost` |").len(), 1);
    }

    #[test]
    fn a_second_row_is_found() {
        let row = "| W-1 | `crash.rs::nothing_lost` | mutation:no-sync |";
        assert_eq!(found(&format!("{row}\n{row}")).len(), 1);
    }

    #[test]
    fn proved_rows_are_fine() {
        let none: Vec<String> = Vec::new();
        assert_eq!(found("| W-1 | `crash.rs::nothing_lost` | `mutation:no-sync` |"), none);
        assert_eq!(found("| W-1 | `tests/crash.rs::nothing_lost` | with the sync removed |"), none);
        assert_eq!(found("| W-2 | [mapped files](decisions/001-x.md) | |"), none);
        assert_eq!(found(""), none);
    }
}

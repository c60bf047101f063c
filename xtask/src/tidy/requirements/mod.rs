//! Each requirement has a test that was seen to fail, and `docs/requirements.md` names both.
//!
//! [`list`] has the ids, tests name those that they show ([`at_tests`]), and mutations those that
//! they break. [`page`] is written from the three, so it cannot name what is not there.

mod at_tests;
mod list;
mod page;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::finding::Finding;
use super::source;
use super::tree::Tree;
use crate::mutations::{self, Mutation};
use at_tests::Test;
use list::List;

const RULE: &str = "requirements";
const COMMAND: &str = "run `cargo xtask requirements`";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = match Sources::read(tree) {
        Ok(Some(sources)) => sources,
        Ok(None) => return Vec::new(),
        Err(findings) => return findings,
    };
    let findings = sources.check(tree);
    // The page of sources that are wrong is of no interest.
    if findings.is_empty() { outdated(tree, &sources.page()) } else { findings }
}

/// Writes the page of the tree at `root`; `false` if its sources are wrong.
pub fn write(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let (page, findings) = match Sources::read(&tree) {
        Ok(Some(sources)) => (sources.page(), sources.check(&tree)),
        Ok(None) => {
            anyhow::bail!("there is no {}, or {} cannot be read", list::FILE, mutations::FILE)
        }
        Err(findings) => (String::new(), findings),
    };
    findings.iter().for_each(|finding| println!("{finding}"));
    if findings.is_empty() {
        std::fs::write(root.join(page::FILE), page)?;
    }
    Ok(findings.is_empty())
}

/// What the page is written from.
struct Sources {
    list: List,
    tests: Vec<Test>,
    mutations: Vec<Mutation>,
}

impl Sources {
    /// `None` if there is no list, or the mutations cannot be read, which another rule finds.
    fn read(tree: &Tree) -> Result<Option<Self>, Vec<Finding>> {
        let error = |message: String| vec![Finding::error(RULE, list::FILE, 0, message)];
        let Some(text) = tree.text(list::FILE) else {
            let missing = || Err(error(format!("missing, and there is {}", page::FILE)));
            return if tree.has(page::FILE) { missing() } else { Ok(None) };
        };
        let list = list::parse(text).map_err(|why| error(format!("{why:#}")))?;
        let mutations = mutations::parse(tree.text(mutations::FILE).unwrap_or_default());
        let Ok(mutations) = mutations else { return Ok(None) };

        let (mut tests, mut findings) = (Vec::new(), Vec::new());
        for (path, text) in tree.files() {
            for test in at_tests::of(path, text) {
                match test {
                    Ok(test) => tests.push(test),
                    Err(why) => findings.push(Finding::error(RULE, path, why.line, why.message)),
                }
            }
        }
        if findings.is_empty() { Ok(Some(Self { list, tests, mutations })) } else { Err(findings) }
    }

    fn page(&self) -> String {
        page::of(&self.list, &self.tests, &self.mutations)
    }

    fn check(&self, tree: &Tree) -> Vec<Finding> {
        let mut findings = self.check_tests();
        let mut found = |file, message| findings.push(Finding::error(RULE, file, 0, message));
        let ids: BTreeSet<_> = self.list.ids().collect();
        for mutation in &self.mutations {
            for id in mutation.requirements.iter().filter(|id| !ids.contains(id.as_str())) {
                found(mutations::FILE, format!("{}: {}", mutation.id, unknown(id)));
            }
        }
        for id in &ids {
            let names = |named: &[String]| named.iter().any(|name| name == id);
            let note = self.list.notes.get(*id);
            let tested = self.tests.iter().any(|test| names(&test.ids));
            let mutated = self.mutations.iter().any(|mutation| names(&mutation.requirements));
            if !tested && note.is_none_or(|note| note.note.is_none()) {
                found(list::FILE, format!("{id} has no test, and no note in the place of one"));
            }
            if tested && !mutated && note.is_none_or(|note| note.seen_failing.is_none()) {
                found(list::FILE, format!("{id} has tests, but no mutation and no `seen_failing`"));
            }
        }
        for (id, note) in &self.list.notes {
            let named =
                note.texts().flat_map(in_backticks).filter_map(|name| name.split_once("::"));
            let tests = named.filter(|(file, _)| file.ends_with(".rs"));
            for (file, name) in tests.filter(|(file, name)| !has_function(tree, file, name)) {
                found(list::FILE, format!("{id}: there is no `fn {name}` in {file}"));
            }
        }
        findings
    }

    fn check_tests(&self) -> Vec<Finding> {
        let ids: BTreeSet<_> = self.list.ids().collect();
        let mut names = BTreeSet::new();
        let mut findings = Vec::new();
        for Test { path, line, name, ids: named } in &self.tests {
            let mut found = |message| findings.push(Finding::error(RULE, path, *line, message));
            for id in named.iter().filter(|id| !ids.contains(id.as_str())) {
                found(format!("{name}: {}", unknown(id)));
            }
            if !names.insert((path, name)) {
                found(format!("a second test of this file is called {name}"));
            }
        }
        findings
    }
}

fn unknown(id: &str) -> String {
    format!("{} has no id {id}", list::FILE)
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn has_function(tree: &Tree, file: &str, name: &str) -> bool {
    let text = tree.text(file).unwrap_or_default();
    !source::lines_with_word(text, &format!("fn {name}")).is_empty()
}

/// Where the page of the tree is not `page`, and lines of it that are too long.
fn outdated(tree: &Tree, page: &str) -> Vec<Finding> {
    let present = tree.text(page::FILE).unwrap_or_default();
    if present != page {
        let same = present.lines().zip(page.lines()).take_while(|(old, new)| old == new).count();
        let message = format!("not what the tests, mutations and {} say: {COMMAND}", list::FILE);
        return vec![Finding::error(RULE, page::FILE, same + 1, message)];
    }
    let columns = page.lines().map(|line| line.chars().count()).enumerate();
    let long = columns.filter(|(_, columns)| *columns > page::COLUMNS);
    let message = |columns| format!("{columns} columns; {} is the most", page::COLUMNS);
    let finding = |(at, columns)| Finding::error(RULE, page::FILE, at + 1, message(columns));
    long.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[[component]]\nprefix = 'W'\ntitle = 'Log'\nids = ['W-1']\n";
    const TEST: &str = "/// Requirements: W-1.\n#[test]\nfn nothing_lost() {}\n";
    const MUTATION: &str = "[[mutation]]\nid='no-sync'\nfile='x.rs'\nfind='a'\nreplace='b'\n\
                            test=''\nrequirements=['W-1']\n";

    /// What is found beside a page that is up to date.
    fn found(list: &str, test: &str, mutations: &str) -> Vec<String> {
        let files =
            [(list::FILE, list), ("crates/log/tests/crash.rs", test), (mutations::FILE, mutations)];
        let page = match Sources::read(&Tree::of(&files)) {
            Ok(Some(sources)) => sources.page(),
            _ => String::new(),
        };
        let tree = Tree::of(&[&files[..], &[(page::FILE, &page)]].concat());
        check(&tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    fn assert_found(found: &[String], message: &str) {
        assert!(found.len() == 1 && found[0].contains(message), "{found:?}");
    }

    #[test]
    fn an_id_without_a_test_or_note_is_found() {
        let two = LIST.replace("['W-1']", "['W-1', 'W-2']");
        assert_found(&found(&two, TEST, MUTATION), "W-2 has no test");
        let note = |key: &str| format!("{two}[[note]]\nid='W-2'\n{key}='a decision'\n");
        assert_found(&found(&note("seen_failing"), TEST, MUTATION), "W-2 has no test");
        assert_eq!(found(&note("note"), TEST, MUTATION), [""; 0]);
    }

    #[test]
    fn tests_that_were_not_seen_failing_are_found() {
        assert_found(&found(LIST, TEST, ""), "W-1 has tests, but no mutation");
        let note = |key: &str| format!("{LIST}[[note]]\nid='W-1'\n{key}='with no sync'\n");
        assert_found(&found(&note("note"), TEST, ""), "W-1 has tests, but no mutation");
        assert_eq!(found(&note("seen_failing"), TEST, ""), [""; 0]);
    }

    #[test]
    fn unknown_ids_are_found() {
        let mutation = MUTATION.replace("['W-1']", "['W-1', 'W-2']");
        let unknown = "no-sync: docs/requirements.toml has no id W-2";
        assert_found(&found(LIST, TEST, &mutation), unknown);
        let test = TEST.replace("W-1.", "W-1, W-2.");
        let unknown = "crash.rs:1: nothing_lost: docs/requirements.toml has no id W-2";
        assert_found(&found(LIST, &test, MUTATION), unknown);
    }

    #[test]
    fn names_that_are_not_those_of_one_test_are_found() {
        let two = format!("{TEST}mod deeper {{\n{TEST}}}\n");
        assert_found(&found(LIST, &two, MUTATION), "a second test of this file is called nothing");
        for name in ["crash.rs::gone", "crash.rs::nothing", "other.rs::nothing_lost"] {
            let note = format!("[[note]]\nid='W-1'\nnote='see `crates/log/tests/{name}`'\n");
            assert_found(&found(&format!("{LIST}{note}"), TEST, MUTATION), "there is no `fn");
        }
        let note = "[[note]]\nid='W-1'\nnote='`crates/log/tests/crash.rs::nothing_lost`, `a::b`'\n";
        assert_eq!(found(&format!("{LIST}{note}"), TEST, MUTATION), [""; 0]);
    }

    #[test]
    fn sources_that_cannot_be_read_are_found() {
        assert_found(&found("ids = 1\n", TEST, MUTATION), "docs/requirements.toml");
        assert_found(&found(LIST, &TEST.replace("W-1.", "W-1"), MUTATION), "`Requirements:`");
        let found = check(&Tree::of(&[(page::FILE, "# Title\n")]));
        assert_found(&[found[0].to_string()], "docs/requirements.toml: missing");
    }

    #[test]
    fn a_page_that_is_not_up_to_date_is_found() {
        for page in ["", "# Title\n"] {
            let tree = Tree::of(&[
                (list::FILE, LIST),
                ("crates/log/tests/crash.rs", TEST),
                (mutations::FILE, MUTATION),
                (page::FILE, page),
            ]);
            let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
            assert_found(&found, COMMAND);
        }
        assert_eq!(found(LIST, TEST, MUTATION), [""; 0]);
    }

    #[test]
    fn a_line_that_is_too_long_is_found() {
        let test = TEST.replace("nothing_lost", &"n".repeat(page::COLUMNS));
        assert_found(&found(LIST, &test, MUTATION), "124 columns; 120 is the most");
    }

    #[test]
    fn the_command_writes_a_page_that_is_up_to_date() {
        let root = tempfile::tempdir().unwrap();
        let write_file = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write_file(list::FILE, LIST);
        write_file(mutations::FILE, MUTATION);
        assert!(!write(root.path()).unwrap(), "no test");
        assert!(!root.path().join(page::FILE).exists());
        write_file("crates/log/tests/crash.rs", TEST);
        assert!(write(root.path()).unwrap());
        assert_eq!(check(&Tree::read(root.path()).unwrap()), []);
    }
}

//! `crates/CRATE/mutations.toml` can be applied: each mutation's text occurs once in its file, and
//! its test exists.

use super::finding::Finding;
use super::tree::Tree;
use crate::mutations::{self, Mutation};

const RULE: &str = "mutation-list";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in tree.crates() {
        let list = format!("crates/{folder}/{}", mutations::FILE);
        let mut error = |message| findings.push(Finding::error(RULE, &list, 0, message));
        match tree.text(&list).map(mutations::parse) {
            None => {}
            Some(Err(parse)) => error(format!("{parse:#}")),
            Some(Ok(mutations)) => mutations
                .iter()
                .flat_map(|(name, mutation)| {
                    unusable(tree, folder, mutation).map(move |why| format!("{name}: {why}"))
                })
                .for_each(error),
        }
    }
    findings
}

/// The reasons for which a mutation cannot be tried.
fn unusable(tree: &Tree, folder: &str, mutation: &Mutation) -> impl Iterator<Item = String> {
    let Mutation { file, test, .. } = mutation;
    let applied = match tree.text(&format!("crates/{folder}/{file}")) {
        None => Some(format!("there is no {file}")),
        Some(text) => mutation.applied_to(text).err().map(|why| why.to_string()),
    };
    let cited = resolved(folder, &test.file);
    let is_there = cited.and_then(|file| tree.text(&file)).is_some_and(|text| {
        text.contains("#[test]") || text.contains("#[tokio::test") || text.contains("proptest!")
    } && text.contains(&format!("fn {}(", test.name)));
    let missing = (!is_there).then(|| format!("there is no test {} in {}", test.name, test.file));
    applied.into_iter().chain(missing)
}

/// The path from the root of `path`, which is relative to a crate's folder.
fn resolved(folder: &str, path: &str) -> Option<String> {
    let mut parts = vec!["crates", folder];
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[a]\nfile = 'src/x.rs'\nold = 'sync()'\nnew = ''\ntest = 'TEST'\n";

    fn found(source: &str, test: &str) -> usize {
        let body = "#[test]\nfn nothing_is_lost() {}\n";
        check(&Tree::from_files(&[
            ("crates/log/Cargo.toml", ""),
            ("crates/log/mutations.toml", &LIST.replace("TEST", test)),
            ("crates/log/src/x.rs", source),
            ("crates/log/tests/crash/policies.rs", body),
            ("crates/kv/tests/crash.rs", body),
        ]))
        .len()
    }

    #[test]
    fn a_mutation_is_found_whose_text_is_not_there_or_is_there_twice() {
        let test = "tests/crash/policies.rs::nothing_is_lost";
        assert_eq!(found("sync()", test), 0);
        assert_eq!(found("flush()", test), 1);
        assert_eq!(found("sync() sync()", test), 1);
    }

    #[test]
    fn a_mutation_is_found_whose_test_is_not_there() {
        assert_eq!(found("sync()", "../kv/tests/crash.rs::nothing_is_lost"), 0);
        assert_eq!(found("sync()", "tests/crash/policies.rs::something_is_lost"), 1);
        assert_eq!(found("sync()", "tests/crash.rs::nothing_is_lost"), 1);
        assert_eq!(found("sync()", "crash"), 1);
    }
}

//! `docs/mutations.toml` can be applied: each mutation's text occurs once in its file, and its
//! command selects a test.
//!
//! The tests are those that the sources name: `fn` after `#[test]`, below the modules of its file.
//! Nothing is compiled.

use super::finding::Finding;
use super::source;
use super::tree::Tree;
use crate::mutations::{self, Mutation};

const RULE: &str = "mutation-list";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let error = |message: String| Finding::error(RULE, mutations::FILE, 0, message);
    let Some(text) = tree.text(mutations::FILE) else { return Vec::new() };
    let mutations = match mutations::parse(text) {
        Ok(mutations) => mutations,
        Err(parse) => return vec![error(format!("{parse:#}"))],
    };
    mutations.iter().flat_map(|mutation| unusable(tree, mutation)).map(error).collect()
}

/// What keeps a mutation from being tried: it does not apply, or its command selects no test.
pub fn unusable(tree: &Tree, mutation: &Mutation) -> Vec<String> {
    let Mutation { id, file, test, .. } = mutation;
    let applied = match tree.text(file) {
        None => Some(format!("mutation {id}: there is no {file}")),
        Some(text) => mutation.applied_to(text).err().map(|why| why.to_string()),
    };
    let selected = (!selects_a_test(tree, test))
        .then(|| format!("mutation {id}: `cargo test {test}` selects no test"));
    applied.into_iter().chain(selected).collect()
}

/// Whether the arguments of `cargo test` select a test of `crates/`; those of other packages, and
/// those that name neither a test binary nor the library, are not looked at.
fn selects_a_test(tree: &Tree, arguments: &str) -> bool {
    let (mut package, mut root, mut filters) = (None, None, Vec::new());
    let mut words = arguments.split_whitespace().filter(|word| *word != "--");
    let mut exact = false;
    while let Some(word) = words.next() {
        match word {
            "-p" => package = words.next().and_then(|name| name.strip_prefix("esker-")),
            "--lib" => root = Some("src".to_owned()),
            "--test" => root = words.next().map(|name| format!("tests/{name}")),
            "--exact" => exact = true,
            flag if flag.starts_with('-') => {}
            filter => filters.push(filter),
        }
    }
    let (Some(package), Some(root)) = (package, root) else { return true };
    if !tree.has(&format!("crates/{package}/Cargo.toml")) {
        return true;
    }
    let root = format!("crates/{package}/{root}");
    let selected = |name: &str| {
        let fits = |filter: &&str| if exact { name == *filter } else { name.contains(filter) };
        filters.is_empty() || filters.iter().any(fits)
    };
    tree.files()
        .filter_map(|(path, text)| Some((modules(path.strip_prefix(&root)?)?, text)))
        .any(|(modules, text)| names(&modules, text).iter().any(|name| selected(name)))
}

/// The modules of a file of a test binary or library, by its path after the root: `::` at the end
/// of each.
fn modules(path: &str) -> Option<String> {
    let path = path.strip_suffix(".rs")?;
    if path.is_empty() {
        return Some(String::new());
    }
    let mut parts: Vec<_> = path.strip_prefix('/')?.split('/').collect();
    if parts.last().is_some_and(|last| matches!(*last, "main" | "lib" | "mod")) {
        parts.pop();
    }
    Some(parts.iter().map(|part| format!("{part}::")).collect())
}

/// The tests of a file, in its module and in the module `tests` below it: which one, only a parser
/// would know.
fn names(modules: &str, text: &str) -> Vec<String> {
    let code = source::code(text).replace("#[tokio::test", "#[test]");
    let mut names = Vec::new();
    for after in code.split("#[test]").skip(1) {
        let Some((_, name)) = after.split_once("fn ") else { continue };
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        names.push(format!("{modules}{}", &name[..end]));
        names.push(format!("{modules}tests::{}", &name[..end]));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> usize {
        let list = "[[mutation]]\nid='a'\nfile='x.rs'\nfind='sync()'\nreplace=''\ntest=''\n";
        check(&Tree::of(&[(mutations::FILE, list), ("x.rs", source)])).len()
    }

    #[test]
    fn a_mutation_without_its_place_is_found() {
        assert_eq!(found("flush()"), 1);
        assert_eq!(found("sync() sync()"), 1);
        assert_eq!(check(&Tree::of(&[(mutations::FILE, "[[mutation]]\n")])).len(), 1);
    }

    #[test]
    fn a_mutation_in_its_place_is_fine() {
        assert_eq!(found("sync()"), 0);
    }

    #[test]
    fn a_command_that_selects_no_test_is_found() {
        let list = "[[mutation]]\nid='a'\nfile='x.rs'\nfind='sync()'\nreplace=''\ntest='COMMAND'\n";
        let found = |command: &str| {
            let list = list.replace("COMMAND", command);
            let test = "#[test]\n#[ignore]\nfn nothing_lost() {}\n";
            let unit = "mod tests {\n    #[test]\n    fn round_trip() {}\n}\n";
            let files = [
                (mutations::FILE, list.as_str()),
                ("x.rs", "sync()"),
                ("crates/log/Cargo.toml", ""),
                ("crates/log/tests/close.rs", test),
                ("crates/log/tests/crash/main.rs", "mod policies;"),
                ("crates/log/tests/crash/policies.rs", test),
                ("crates/log/src/format/record.rs", unit),
                (
                    "crates/log/tests/task.rs",
                    "#[tokio::test(flavor = \"a\")]\nasync fn awaited() {}\n",
                ),
            ];
            check(&Tree::of(&files)).len()
        };
        for selects in [
            "-p esker-log --test close",
            "-p esker-log --test close -- nothing",
            "-p esker-log --test task -- awaited",
            "-p esker-log --test crash -- policies::nothing",
            "-p esker-log --test crash -- --exact policies::nothing_lost",
            "-p esker-log --lib record::tests::round",
            "-p elsewhere --test close",
            "-p esker-paxos",
        ] {
            assert_eq!(found(selects), 0, "{selects}");
        }
        for selects_none in [
            "-p esker-log --test crashes",
            "-p esker-log --test close -- something",
            "-p esker-log --test crash -- crash::policies",
            "-p esker-log --test crash -- --exact policies::nothing",
            "-p esker-log --lib segment::",
        ] {
            assert_eq!(found(selects_none), 1, "{selects_none}");
        }
    }
}

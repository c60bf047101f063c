//! Modules import downwards: no cycle, and no import that `xtask/modules.toml` does not allow.
//!
//! A crate that the table names lists its top-level modules, each with those it may import. That is
//! transitive: what a module may import, its importers may import, too. The root may import all of
//! them, and nothing imports the root. In every crate, listed or not, no files import one another
//! in a circle. Binaries in `src/bin/NAME/` are checked for circles alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::imports::{Imports, Module};
use super::tree::Tree;

const RULE: &str = "modules";
pub const FILE: &str = "xtask/modules.toml";
/// The folder of the binaries of a crate, below its sources.
const BINARIES: &str = "bin/";

/// Crate, module, and what it may import.
type Table = BTreeMap<String, BTreeMap<String, Vec<String>>>;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let table: Table = match toml::from_str(tree.text(FILE).unwrap_or_default()) {
        Ok(table) => table,
        Err(parse) => return vec![Finding::error(RULE, FILE, 0, format!("is not TOML: {parse}"))],
    };
    let mut findings = Vec::new();
    for folder in source_folders(tree) {
        let below = |(path, text)| Some((inner_path(&folder, path)?, text));
        let imports = Imports::read(tree.files().filter_map(below));
        findings.extend(cycles(&folder, &imports));
        let name = folder.split('/').nth(1).unwrap_or(&folder);
        if let Some(allowed) = table.get(name).filter(|_| folder.ends_with("/src")) {
            findings.extend(upward(&folder, &imports, allowed));
        }
    }
    let known: BTreeSet<_> = tree.crates().collect();
    let unknown = table.keys().filter(|name| !known.contains(name.as_str()));
    findings.extend(unknown.map(|name| Finding::error(RULE, FILE, 0, format!("no crate {name}"))));
    findings
}

/// The path below the source folder of a crate. Its binaries are crates of their own.
fn inner_path<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let inner = path.strip_prefix(folder)?.strip_prefix('/')?;
    (inner.ends_with(".rs") && !inner.starts_with(BINARIES)).then_some(inner)
}

/// The `src` folders beside manifests, and the folders of binaries in them.
fn source_folders(tree: &Tree) -> Vec<String> {
    let manifests = tree.files().filter_map(|(path, _)| path.strip_suffix("Cargo.toml"));
    let folders = manifests.map(|at| format!("{at}src"));
    let roots = tree.files().filter_map(|(path, _)| path.strip_suffix("/main.rs"));
    let is_binary = |folder: &&str| {
        folder.rsplit_once('/').is_some_and(|(parent, _)| parent.ends_with("/src/bin"))
    };
    let binaries = roots.filter(is_binary).map(str::to_owned);
    folders.filter(|folder| tree.has(folder)).chain(binaries).collect()
}

fn name_of(module: &Module) -> String {
    if module.is_empty() { "the root".into() } else { module.join("::") }
}

fn upward(
    folder: &str,
    imports: &Imports,
    allowed: &BTreeMap<String, Vec<String>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (module, edges) in &imports.edges {
        let path = format!("{folder}/{}", imports.files[module]);
        let Some(top) = module.first() else { continue };
        let Some(reach) = reachable(top, allowed) else {
            let message = format!("{FILE} does not say what {top} may import");
            findings.push(Finding::error(RULE, &path, 0, message));
            continue;
        };
        for (target, line) in edges {
            let fine = target.first().is_some_and(|to| to == top || reach.contains(to.as_str()));
            if !fine {
                let message =
                    format!("{top} may not import {}: it is not below it", name_of(target));
                findings.push(Finding::error(RULE, &path, *line, message));
            }
        }
    }
    findings
}

/// The modules that `top` may import; `None` where the table does not name it.
fn reachable<'a>(
    top: &str,
    allowed: &'a BTreeMap<String, Vec<String>>,
) -> Option<BTreeSet<&'a str>> {
    let mut reach = BTreeSet::new();
    let mut open: Vec<&str> = allowed.get(top)?.iter().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if reach.insert(next) {
            open.extend(allowed.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    Some(reach)
}

/// One finding for each group of files that import one another, with the shortest circle in it.
fn cycles(folder: &str, imports: &Imports) -> Vec<Finding> {
    let circles = imports.edges.keys().filter_map(|module| circle(imports, module));
    let circles: BTreeMap<&Module, Vec<&Module>> =
        circles.map(|circle| (circle[0], circle)).collect();
    let mut groups: BTreeMap<BTreeSet<&Module>, &Vec<&Module>> = BTreeMap::new();
    for (module, circle) in &circles {
        let reached = reached(imports, module);
        let back = |other: &&&Module| self::reached(imports, other).contains_key(*module);
        let group = reached.keys().filter(back).copied().collect();
        let shortest = groups.entry(group).or_insert(circle);
        if circle.len() < shortest.len() {
            *shortest = circle;
        }
    }
    let finding = |(group, circle): (BTreeSet<_>, &Vec<&Module>)| {
        let names: Vec<_> =
            circle.iter().chain(&circle[..1]).map(|module| name_of(module)).collect();
        let message = format!(
            "imports go in a circle: {} ({} files are in such circles)",
            names.join(" -> "),
            group.len()
        );
        let line = imports.edges[circle[0]][circle[1 % circle.len()]];
        let path = format!("{folder}/{}", imports.files[circle[0]]);
        Finding::error(RULE, &path, line, message)
    };
    groups.into_iter().map(finding).collect()
}

/// The modules that `from` reaches by an import or more, each with one that imports it on the
/// shortest way.
fn reached<'a>(imports: &'a Imports, from: &'a Module) -> BTreeMap<&'a Module, &'a Module> {
    let mut reached = BTreeMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(next) = open.pop_front() {
        for target in imports.edges[next].keys() {
            reached.entry(target).or_insert_with(|| {
                open.push_back(target);
                next
            });
        }
    }
    reached
}

/// The shortest circle of imports from `start` back to it.
fn circle<'a>(imports: &'a Imports, start: &'a Module) -> Option<Vec<&'a Module>> {
    let reached = reached(imports, start);
    let mut circle = vec![*reached.get(start)?];
    while circle.last() != Some(&start) {
        circle.push(reached[circle.last()?]);
    }
    circle.reverse();
    Some(circle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: (&str, &str) = ("crates/log/Cargo.toml", "");
    const TABLE: (&str, &str) =
        (FILE, "[log]\nformat = []\nstore = ['format']\ncommit = ['store']\n");

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let all: Vec<_> = [MANIFEST].into_iter().chain(files.iter().copied()).collect();
        check(&Tree::from_files(&all)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_upward_import_is_found() {
        let found = messages(&[
            TABLE,
            ("crates/log/src/format.rs", "\nuse super::store::Store;\n"),
            ("crates/log/src/store/mod.rs", ""),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("format.rs:2") && found[0].contains("may not import store"));
    }

    #[test]
    fn an_import_of_the_root_is_found() {
        let files = [
            TABLE,
            ("crates/log/src/lib.rs", ""),
            ("crates/log/src/store.rs", "use crate::Log;\n"),
        ];
        assert!(messages(&files)[0].contains("the root"));
    }

    #[test]
    fn a_module_that_the_table_does_not_name_is_found() {
        assert!(messages(&[TABLE, ("crates/log/src/attic.rs", "")])[0].contains("attic"));
        assert!(messages(&[(FILE, "[attic]\n")])[0].contains("no crate attic"));
    }

    #[test]
    fn what_is_allowed_is_so_for_those_above() {
        let files = [
            TABLE,
            ("crates/log/src/lib.rs", "use commit::C;\n"),
            ("crates/log/src/commit/mod.rs", "use crate::format::F;\n"),
            ("crates/log/src/commit/core.rs", "use super::driver;\nuse crate::store;\n"),
            ("crates/log/src/commit/driver.rs", ""),
            ("crates/log/src/format.rs", ""),
            ("crates/log/src/store.rs", ""),
        ];
        assert!(messages(&files).is_empty(), "{:?}", messages(&files));
    }

    #[test]
    fn a_binary_is_a_crate_of_its_own() {
        let files = [
            TABLE,
            ("crates/log/src/bin/esker-log/main.rs", "mod table;\n"),
            ("crates/log/src/bin/esker-log/table.rs", "use crate::print;\n"),
            ("crates/log/src/bin/esker-log/print.rs", ""),
        ];
        assert!(messages(&files).is_empty(), "{:?}", messages(&files));
        let circle = ("crates/log/src/bin/esker-log/print.rs", "use crate::table;\n");
        let found = messages(&[&files[..3], &[circle]].concat());
        assert!(found[0].contains("print -> table -> print"), "{found:?}");
    }

    #[test]
    fn a_circle_is_found_once() {
        let files = [
            ("crates/log/src/a.rs", "use crate::b;\n"),
            ("crates/log/src/b.rs", "use crate::c::d;\n"),
            ("crates/log/src/c/mod.rs", ""),
            ("crates/log/src/c/d.rs", "use crate::a;\nuse crate::b;\n"),
        ];
        let found = messages(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("b -> c::d -> b (3 files"), "{found:?}");
    }
}

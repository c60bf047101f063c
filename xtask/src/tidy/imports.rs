//! Which modules of its own crate a source file imports.
//!
//! Reads paths that start with `crate`, `super`, `self` or the name of a child module, in `use`
//! items and in expressions alike. Comments, literals and test modules do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::source;

/// A module by its path from the crate's root, which is empty.
pub type Module = Vec<String>;

/// The modules of one crate and what each imports.
#[derive(Debug, Default)]
pub struct Imports {
    /// The file of each module.
    pub files: BTreeMap<Module, String>,
    /// For each module, the modules that it imports, and the first line on which it does.
    pub edges: BTreeMap<Module, BTreeMap<Module, usize>>,
}

/// The module that the file `inner` holds, a path below a crate's `src`.
fn module_of(inner: &str) -> Option<Module> {
    let mut module: Module = inner.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    let root = module.len() == 1 && matches!(module[0].as_str(), "lib" | "main");
    if root || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    Some(module)
}

impl Imports {
    /// Reads the sources of one crate: paths below `src`, and texts.
    pub fn read<'a>(sources: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let sources: Vec<(Module, &str, &str)> =
            sources.filter_map(|(inner, text)| Some((module_of(inner)?, inner, text))).collect();
        let mut imports = Self::default();
        for (module, inner, _) in &sources {
            imports.files.insert(module.clone(), (*inner).to_owned());
        }
        for (module, _, text) in &sources {
            let code = source::without_tests(&source::code(text));
            let edges = imports.of_file(module, &code);
            imports.edges.insert(module.clone(), edges);
        }
        imports
    }

    fn of_file(&self, module: &Module, code: &str) -> BTreeMap<Module, usize> {
        let mut edges = BTreeMap::new();
        for (at, path) in paths(code, &self.children(module)) {
            let Some(target) = self.resolve(module, &path) else { continue };
            if target != *module {
                let line = code[..at].matches('\n').count() + 1;
                edges.entry(target).or_insert(line);
            }
        }
        edges
    }

    fn children(&self, module: &Module) -> BTreeSet<&str> {
        let below = |other: &&Module| other.len() == module.len() + 1 && other.starts_with(module);
        self.files.keys().filter(below).filter_map(|other| Some(other.last()?.as_str())).collect()
    }

    /// The deepest module that a path leads into.
    fn resolve(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut target = match path.first()?.as_str() {
            "crate" => Vec::new(),
            _ => module.clone(),
        };
        for segment in path {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => {
                    target.pop()?;
                }
                name => {
                    target.push(name.to_owned());
                    if !self.files.contains_key(&target) {
                        target.pop();
                        break;
                    }
                }
            }
        }
        self.files.contains_key(&target).then_some(target)
    }
}

/// The paths in `code` that lead into the crate itself, each with its place.
fn paths(code: &str, children: &BTreeSet<&str>) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = code[at..].chars().next() {
        let word = word(&code[at..]);
        if word.is_empty() {
            at += c.len_utf8();
            continue;
        }
        let inner = code[..at].ends_with("::") || code[..at].ends_with('.');
        let starts = matches!(word, "crate" | "super" | "self") || children.contains(word);
        if !inner && starts && code[at + word.len()..].starts_with("::") {
            tree(&code[at..], &mut Vec::new(), &mut |path| found.push((at, path)));
        }
        at += word.len();
    }
    found
}

/// Visits every path of the `use` tree, or the one path, that `text` starts with. Returns the
/// number of bytes that it takes.
fn tree(text: &str, prefix: &mut Vec<String>, visit: &mut impl FnMut(Vec<String>)) -> usize {
    let depth = prefix.len();
    let mut at = 0;
    loop {
        let name = word(&text[at..]);
        if !name.is_empty() {
            prefix.push(name.to_owned());
            at += name.len();
            if text[at..].starts_with("::") {
                at += 2;
                continue;
            }
            visit(prefix.clone());
        } else if text[at..].starts_with('{') {
            at += 1 + group(&text[at + 1..], prefix, visit);
        } else {
            visit(prefix.clone());
        }
        break;
    }
    prefix.truncate(depth);
    at
}

/// The members of a group after its opening brace, and the bytes through the closing one.
fn group(text: &str, prefix: &mut Vec<String>, visit: &mut impl FnMut(Vec<String>)) -> usize {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c == '}' {
            return at + 1;
        }
        let member = c == '{' || !word(&text[at..]).is_empty();
        let taken = if member { tree(&text[at..], prefix, visit) } else { 0 };
        at += taken.max(c.len_utf8());
    }
    at
}

/// The identifier that `text` starts with, or nothing.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &text[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 7] =
        ["lib.rs", "a.rs", "core/mod.rs", "core/place.rs", "core/jobs.rs", "b/mod.rs", "b/c.rs"];

    fn edges(file: &str, text: &str) -> Vec<String> {
        let sources = FILES.map(|name| (name, if name == file { text } else { "" }));
        let imports = Imports::read(sources.into_iter());
        let of = &imports.edges[&module_of(file).unwrap()];
        of.iter().map(|(module, line)| format!("{}:{line}", module.join("::"))).collect()
    }

    #[test]
    fn use_trees_and_expressions_count() {
        let text = "use crate::{\n    a::A,\n    core::{Core, place::{P, Q}},\n};\nfn f() { crate::b::c::g(); }\n";
        assert_eq!(edges("core/jobs.rs", text), ["a:1", "b::c:5", "core:1", "core::place:1"]);
    }

    #[test]
    fn super_and_children_count() {
        assert_eq!(
            edges("core/jobs.rs", "use super::{Core, place::P};\n"),
            ["core:1", "core::place:1"]
        );
        assert_eq!(
            edges("core/mod.rs", "mod jobs;\nuse jobs::J;\nuse super::a;\n"),
            ["a:3", "core::jobs:2"]
        );
        assert_eq!(
            edges("lib.rs", "pub use a::A;\npub use core::place::P;\n"),
            ["a:1", "core::place:2"]
        );
    }

    #[test]
    fn what_is_no_import_does_not_count() {
        let text = "/// [`crate::a::A`]\nfn f() { x.a::<u8>(); std::a::f(); \"crate::a\"; }\n\
                    #[cfg(test)]\nmod tests {\n    use crate::a;\n}\n";
        assert!(edges("core/jobs.rs", text).is_empty());
    }

    #[test]
    fn the_root_is_a_module() {
        assert_eq!(edges("a.rs", "use crate::Seq;\n"), [":1"]);
    }
}

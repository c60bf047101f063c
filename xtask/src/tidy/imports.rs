//! The modules of its own crate that a source file imports.
//!
//! Reads paths that start with `crate`, `super`, `self` or the name of a child module, in `use`
//! items and in expressions alike. Comments, literals and test modules do not count.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{UseName, UsePath, UseRename, UseTree};

use super::source;

/// A module by its path from the crate's root, which is empty.
pub type Module = Vec<String>;

/// The modules of one crate and what each imports.
#[derive(Debug, Default)]
pub struct Imports {
    /// The file of each module.
    pub files: BTreeMap<Module, String>,
    /// The modules that each module imports, and the first line on which it does.
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
            let edges = imports.edges_from(module, text);
            imports.edges.insert(module.clone(), edges);
        }
        imports
    }

    fn edges_from(&self, module: &Module, text: &str) -> BTreeMap<Module, usize> {
        let mut paths = Paths { children: self.children(module), found: Vec::new() };
        if let Ok(file) = syn::parse_file(text) {
            paths.visit_file(&file);
        }
        let mut edges = BTreeMap::new();
        for (line, path) in paths.found {
            let target = self.resolve(module, &path).filter(|target| target != module);
            target.into_iter().for_each(|target| _ = edges.entry(target).or_insert(line));
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

/// The paths of a file that lead into its own crate, each with its line.
struct Paths<'a> {
    /// The modules below the file's own.
    children: BTreeSet<&'a str>,
    found: Vec<(usize, Vec<String>)>,
}

impl Paths<'_> {
    fn push(&mut self, line: usize, path: Vec<String>) {
        let [first, _, ..] = path.as_slice() else { return };
        let first = first.as_str();
        if matches!(first, "crate" | "super" | "self") || self.children.contains(first) {
            self.found.push((line, path));
        }
    }

    fn push_use(&mut self, line: usize, tree: &UseTree, mut path: Vec<String>) {
        match tree {
            UseTree::Path(UsePath { ident, tree, .. }) => {
                path.push(ident.to_string());
                self.push_use(line, tree, path);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.push_use(line, tree, path.clone()));
            }
            UseTree::Name(UseName { ident }) | UseTree::Rename(UseRename { ident, .. }) => {
                path.push(ident.to_string());
                self.push(line, path);
            }
            UseTree::Glob(_) => self.push(line, path),
        }
    }

    /// The arguments of a macro are read as paths among other tokens.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let parse = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Ok(path) = input.call(syn::Path::parse_mod_style) {
                    self.visit_path(&path);
                } else if let TokenTree::Group(group) = input.parse()? {
                    self.visit_tokens(group.stream());
                }
            }
            Ok(())
        };
        // Every token can be parsed as one.
        let _ = parse.parse2(tokens);
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !source::is_test_module(module) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.push_use(item.span().start().line, &item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.push(path.span().start().line, names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.visit_tokens(call.tokens.clone());
    }
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
    fn arguments_of_macros_count() {
        let text = "fn f() {\n    select! {\n        x = crate::a::g() => b![super::place::P],\n    }\n}\n";
        assert_eq!(edges("core/jobs.rs", text), ["a:3", "core::place:3"]);
    }

    #[test]
    fn the_root_is_a_module() {
        assert_eq!(edges("a.rs", "use crate::Seq;\n"), [":1"]);
    }
}

//! Shapes of names and doc comments that do not say what an item is.
//!
//! Tests may have constants of one word. An associated constant has its type as its subject.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Ident, ItemConst, ItemEnum, ItemMod, ItemStruct, ItemTrait, ItemType, Signature, Type};

use super::finding::Finding;
use super::source;
use super::tree::Tree;
use super::words::{List, Words};

const RULE: &str = "shapes";
const MEASURES: [&str; 13] = [
    "Duration", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128",
    "isize",
];
/// File names that each folder may have.
const ROOTS: [&str; 3] = ["mod.rs", "lib.rs", "main.rs"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    // `words` reports a list that cannot be read.
    let Ok(words) = Words::read(tree) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut files = BTreeMap::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".rs")) {
        let is_test = source::is_test(path);
        let mut names = Names { types: &words.types, is_test, found: doc_comments(text, &words) };
        if let Ok(file) = syn::parse_file(text) {
            names.visit_file(&file);
        }
        let found = names.found.into_iter();
        findings.extend(found.map(|(line, message)| Finding::error(RULE, path, line, message)));

        let Some((folder, file)) = path.split_once("/src/") else { continue };
        let name = file.rsplit('/').next().unwrap_or(file);
        if is_test || ROOTS.contains(&name) {
            continue;
        }
        if let Some(other) = files.insert((folder, name), path) {
            let message = format!("{other} has the same name: name both after what they do");
            findings.push(Finding::error(RULE, path, 0, message));
        }
    }
    findings
}

/// Refused first words of doc comments, their sections and their paragraphs, each with its line.
fn doc_comments(text: &str, words: &Words) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // The marker and the text of the line before.
    let mut before: Option<(&str, &str)> = None;
    for (at, line) in (1..).zip(text.lines().map(str::trim)) {
        let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker));
        let doc = marker.map(|marker| (marker, line[marker.len()..].trim_start()));
        let continues = before.zip(doc).is_some_and(|((marker, text), (same, _))| {
            marker == same && !text.is_empty() && !text.starts_with('#')
        });
        before = doc;
        let Some((_, first)) = doc.filter(|_| !continues) else { continue };
        for (word, better) in &words.openings {
            let rest = first.strip_prefix(word.as_str());
            if rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)) {
                found.push((at, format!("a doc comment begins with `{word}`: write {better}")));
            }
        }
    }
    found
}

struct Names<'a> {
    types: &'a List,
    is_test: bool,
    found: Vec<(usize, String)>,
}

impl Names<'_> {
    fn refuse(&mut self, name: &Ident, what: &str, better: &str) {
        let message = format!("the {what} `{name}`: write {better}");
        self.found.push((name.span().start().line, message));
    }

    fn check_type(&mut self, name: &Ident) {
        if let Some(better) = self.types.get(&name.to_string()) {
            self.refuse(name, "type", better);
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        let Type::Path(path) = &*item.ty else { return };
        let is_measure = path
            .path
            .segments
            .last()
            .is_some_and(|last| MEASURES.iter().any(|measure| last.ident == measure));
        if is_measure && !self.is_test && !item.ident.to_string().contains('_') {
            let better = "its subject and unit, as in MEMBER_CALL_TIMEOUT or TIMESTAMP_BYTES";
            self.refuse(&item.ident, "constant", better);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let outside = self.is_test;
        self.is_test |= source::is_test_module(module);
        visit::visit_item_mod(self, module);
        self.is_test = outside;
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        if signature.ident == "of" {
            self.refuse(&signature.ident, "function", "`new`, `from_..` or a verb");
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.check_type(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.check_type(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.check_type(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.check_type(&item.ident);
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: (&str, &str) = ("xtask/words.toml", include_str!("../../words.toml"));

    fn check_file(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::from_files(&[WORDS, (path, text)]))
    }

    fn assert_refused(path: &str, text: &str) {
        let found = check_file(path, text);
        assert!(found.len() == 1 && found[0].message.contains("write "), "{text}: {found:?}");
    }

    #[test]
    fn first_words_of_doc_comments_are_found() {
        for opening in ["What", "Of", "That", "Those", "Whose", "So many", "One that"] {
            assert_refused("crates/kv/src/a.rs", &format!("/// {opening} is read.\nfn a() {{}}\n"));
            assert_refused("crates/kv/tests/a.rs", &format!("//! {opening}: a\n/// A b.\n"));
        }
        assert!(
            check_file("xtask/src/a.rs", "/// A number.\n/// What it is.\n// Of a b\n").is_empty()
        );
        assert!(check_file("xtask/src/a.rs", "/// Whatever.\n/// Offsets.\n").is_empty());
    }

    /// Only the first line of all was looked at: `# Errors` was followed by `Those of the log.`
    #[test]
    fn first_words_of_sections_and_paragraphs_are_found() {
        for before in ["/// # Errors", "///", "/// # Errors\n///"] {
            let text = format!("/// A number.\n///\n/// More.\n{before}\n/// Those of the log.\n");
            assert_refused("crates/kv/src/a.rs", &text);
        }
        assert_refused("crates/kv/src/a.rs", "//! A b.\n//!\n//! What it is.\n");
    }

    #[test]
    fn constants_of_one_word_are_found() {
        for constant in ["AGAIN: std::time::Duration = A", "LEN: usize = 1", "N: i64 = 2"] {
            assert_refused("crates/kv/src/a.rs", &format!("mod b {{ const {constant}; }}\n"));
            let test = format!("#[cfg(test)]\nmod tests {{ const {constant}; }}\n");
            assert!(check_file("crates/kv/src/a.rs", &test).is_empty());
            assert!(check_file("crates/kv/tests/a.rs", &format!("const {constant};\n")).is_empty());
        }
        for code in ["const A_BYTES: u8 = 1;", "const A: &str = B;", "impl A { const B: u8 = 1; }"]
        {
            assert!(check_file("crates/kv/src/a.rs", code).is_empty(), "{code}");
        }
    }

    #[test]
    fn functions_named_of_are_found() {
        for code in ["fn of() {}", "impl A { fn of<T>(t: T) {} }", "trait A { fn of(&self); }"] {
            assert_refused("crates/kv/src/a.rs", code);
        }
        assert!(check_file("crates/kv/src/a.rs", "fn offset() { Tree::from_files() }").is_empty());
    }

    #[test]
    fn types_that_are_no_nouns_are_found() {
        for code in ["struct Asked;", "enum Wrong {}", "type Part = u8;", "trait Gets {}"] {
            assert_refused("crates/kv/src/a.rs", code);
        }
        for code in ["struct BatchPart;", "enum A { Open }", "impl A for B { type Next = C; }"] {
            assert!(check_file("crates/kv/src/a.rs", code).is_empty(), "{code}");
        }
    }

    #[test]
    fn a_file_name_that_occurs_twice_in_a_crate_is_found() {
        let found = |second| {
            let files = [WORDS, ("crates/kv/src/a/mod.rs", ""), ("crates/kv/src/a/open.rs", "")];
            check(&Tree::from_files(&[&files[..], &[(second, "")]].concat())).len()
        };
        assert_eq!(found("crates/kv/src/b/open.rs"), 1);
        assert_eq!(found("crates/kv/src/open.rs"), 1);
        for fine in ["crates/log/src/open.rs", "crates/kv/src/b/mod.rs", "crates/kv/tests/open.rs"]
        {
            assert_eq!(found(fine), 0, "{fine}");
        }
    }
}

//! Reads Rust sources with `syn`: their code, without comments, literals and tests.

use std::ops::{Range, RangeInclusive};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// `text` with comments and the insides of literals blanked out. Lines keep their numbers, and
/// columns their places.
pub fn code(text: &str) -> String {
    let mut ranges = Vec::new();
    code_ranges(text, text.parse().unwrap_or_default(), &mut ranges);
    only(text, &ranges)
}

/// The [`code`] of `text` with its test modules blanked out.
pub fn code_without_tests(text: &str) -> String {
    let tests = test_modules(text);
    let is_test = |line| tests.iter().any(|module| module.contains(&line));
    let code = code(text);
    let kept = (1..).zip(code.lines()).map(|(at, line)| if is_test(at) { "" } else { line });
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// The lines, from 1, of the modules of `text` that are compiled for tests alone.
pub fn test_modules(text: &str) -> Vec<RangeInclusive<usize>> {
    #[derive(Default)]
    struct TestModules(Vec<RangeInclusive<usize>>);
    impl<'ast> Visit<'ast> for TestModules {
        fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
            if is_test_module(module) {
                let span = module.span();
                self.0.push(span.start().line..=span.end().line);
            } else {
                visit::visit_item_mod(self, module);
            }
        }
    }
    let mut modules = TestModules::default();
    if let Ok(file) = syn::parse_file(text) {
        modules.visit_file(&file);
    }
    modules.0
}

/// Whether the module is there under `cfg(test)` or `cfg(all(test, ..))`.
pub fn is_test_module(module: &syn::ItemMod) -> bool {
    module.attrs.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string().replace(' ', "");
        list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
    })
}

/// Whether the file at `path` is a test or a benchmark as a whole.
pub fn is_test(path: &str) -> bool {
    let inner = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    let path = inner.map_or(path, |(_, inner)| inner);
    path.split('/').any(|part| part == "tests")
        || path.starts_with("benches/")
        || path.starts_with("fuzz/")
        || path.ends_with("/tests.rs")
}

/// Whether the file at `path` is code that is shipped, or would be.
pub fn is_shipped(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs") && !is_test(path)
}

/// The lines, from 1, on which `token` is the start of a word of `text`.
pub fn lines_with(text: &str, token: &str) -> Vec<usize> {
    lines_where(text, token, |before, _| !token.starts_with(is_word) || !before.ends_with(is_word))
}

/// The same for a whole word.
pub fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    lines_where(text, word, |before, after| {
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

fn lines_where(text: &str, token: &str, fits: impl Fn(&str, &str) -> bool) -> Vec<usize> {
    let found = |line: &str| {
        line.match_indices(token).any(|(at, _)| fits(&line[..at], &line[at + token.len()..]))
    };
    (1..).zip(text.lines()).filter(|(_, line)| found(line)).map(|(number, _)| number).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `text` with everything outside `ranges` blanked out.
fn only(text: &str, ranges: &[Range<usize>]) -> String {
    let blanks = |text: &str| text.replace(|c| c != '\n', " ");
    let mut kept = String::with_capacity(text.len());
    let mut end = 0;
    for range in ranges {
        kept += &blanks(&text[end..range.start]);
        kept += &text[range.clone()];
        end = range.end;
    }
    kept + &blanks(&text[end..])
}

/// The ranges of the tokens of `stream` in `text`, apart from literals that quote.
fn code_ranges(text: &str, stream: TokenStream, ranges: &mut Vec<Range<usize>>) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let open = group.span_open().byte_range();
                // The attribute that a doc comment is read as has the place of the comment.
                if text[open.clone()].starts_with(['(', '[', '{']) {
                    ranges.push(open);
                    code_ranges(text, group.stream(), ranges);
                    ranges.push(group.span_close().byte_range());
                }
            }
            TokenTree::Literal(literal) if literal.to_string().contains(['"', '\'']) => {}
            token => {
                let range = token.span().byte_range();
                ranges.extend((text[range.clone()] == token.to_string()).then_some(range));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_and_literals() {
        let text = r###"let a = "fsync"; // fsync
/* fsync /* nested */ fsync */ let b = r#"fsync " fsync"#; /// fsync [fsync]
let c = '"'; let d: &'static str = b"\"fsync"; let e = '\''; let ü = 'ü'; real(7, 'a');
"###;
        let code = code(text);
        assert!(!code.contains("fsync"), "{code}");
        assert!(
            code.contains("&'static str") && code.contains("let ü =    ; real(7,    );"),
            "{code}"
        );
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn blanks_test_modules() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\n\nfn c() {}\n";
        let kept = code_without_tests(text);
        assert!(kept.contains("fn a()") && kept.contains("fn c()") && !kept.contains("fn b()"));
        assert_eq!(kept.lines().count(), text.lines().count());
        let inner = "mod a {\n    #[cfg(all(test, unix))]\n    mod b { fn c() {} }\n}\n";
        assert!(!code_without_tests(inner).contains("fn c()"));
    }

    #[test]
    fn a_test_module_elsewhere_hides_nothing_here() {
        let kept = code_without_tests("#[cfg(test)]\nmod tests;\nfn a() {}\n");
        assert!(kept.contains("fn a()"));
        let kept = code_without_tests("#[cfg(test)]\nfn only() {\n}\nmod b {\n    fn a() {}\n}\n");
        assert!(kept.contains("fn a()"));
        let kept = code_without_tests("#[cfg(not(test))]\nmod b {\n    fn a() {}\n}\n");
        assert!(kept.contains("fn a()"));
    }

    #[test]
    fn finds_words_not_parts_of_them() {
        assert_eq!(lines_with("a.sync_all();\nunsync_all();", "sync_all"), [1]);
        assert_eq!(lines_with_word("unsafe {}\nunsafe_code", "unsafe"), [1]);
    }

    #[test]
    fn finds_tests_by_their_path() {
        assert!(is_test("crates/log/tests/a.rs") && is_test("crates/log/src/core/tests.rs"));
        assert!(is_test("crates/log/benches/a.rs") && is_test("crates/log/src/tests/a.rs"));
        assert!(!is_test("crates/log/src/a.rs") && !is_test("crates/tests/src/a.rs"));
    }
}

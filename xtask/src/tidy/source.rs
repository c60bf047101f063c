//! A scanner for Rust sources that separates code from comments, literals and tests.

/// What [`blank`] keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Code,
    CodeAndComments,
}

/// `text` with comments and the insides of literals blanked out. Lines keep their numbers, and
/// columns their places.
pub fn code(text: &str) -> String {
    blank(text, Keep::Code)
}

/// The same, with the comments left in.
pub fn code_and_comments(text: &str) -> String {
    blank(text, Keep::CodeAndComments)
}

/// `code` (that is: without comments and literals) with its test modules blanked out.
pub fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut closing: Option<String> = None;
    let mut pending = false;
    for line in code.lines() {
        let trimmed = line.trim();
        let indent = &line[..line.len() - line.trim_start().len()];
        if let Some(end) = &closing {
            if line.trim_end() == end {
                closing = None;
            }
        } else if is_test_attribute(trimmed) {
            pending = true;
        } else if pending && is_module(trimmed) {
            pending = false;
            closing = (!trimmed.ends_with(['}', ';'])).then(|| format!("{indent}}}"));
        } else {
            pending &= trimmed.is_empty() || trimmed.starts_with("#[");
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
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

/// The lines, from 1, on which `token` is the start of a word of `code`.
pub fn lines_with(code: &str, token: &str) -> Vec<usize> {
    code.lines()
        .enumerate()
        .filter(|(_, line)| {
            line.match_indices(token)
                .any(|(at, _)| !token.starts_with(is_word) || !line[..at].ends_with(is_word))
        })
        .map(|(index, _)| index + 1)
        .collect()
}

/// The same for a whole word.
pub fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| {
            line.match_indices(word).any(|(at, _)| {
                !line[..at].ends_with(is_word) && !line[at + word.len()..].starts_with(is_word)
            })
        })
        .map(|(index, _)| index + 1)
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test,")
}

fn is_module(line: &str) -> bool {
    line.starts_with("mod ") || line.starts_with("pub mod ") || line.starts_with("pub(crate) mod ")
}

fn blank(text: &str, keep: Keep) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (length, kept) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), keep == Keep::CodeAndComments)
        } else if rest.starts_with("/*") {
            (block_comment(rest), keep == Keep::CodeAndComments)
        } else if let Some(length) = raw_string(rest).filter(|_| !out.ends_with(is_word)) {
            (length, false)
        } else if c == '"' {
            (quoted(rest, '"'), false)
        } else if c == '\'' && is_char_literal(rest) {
            (quoted(rest, '\''), false)
        } else {
            (c.len_utf8(), true)
        };
        let (piece, left) = rest.split_at(length);
        if kept {
            out.push_str(piece);
        } else {
            out.extend(piece.chars().map(|c| if c == '\n' { c } else { ' ' }));
        }
        rest = left;
    }
    out
}

/// The length of the block comment, which may nest, that `text` starts with.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the literal that `text` starts with, up to the closing `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

/// The length of the raw string that `text` starts with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let inner = text.strip_prefix(['b', 'c']).unwrap_or(text).strip_prefix('r')?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let body = inner[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |at| opening + at + end.len()))
}

/// Distinguishes `'a'` from the lifetime `'a`.
fn is_char_literal(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_and_literals() {
        let text = r###"let a = "fsync"; // fsync
/* fsync /* nested */ fsync */ let b = r#"fsync " fsync"#;
let c = '"'; let d: &'static str = b"\"fsync"; let e = '\''; real();
"###;
        let code = code(text);
        assert!(!code.contains("fsync"), "{code}");
        assert!(code.contains("&'static str") && code.contains("real();"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn may_keep_the_comments() {
        let kept = code_and_comments("// later\nlet a = \"never\";\n");
        assert!(kept.contains("later") && !kept.contains("never"));
    }

    #[test]
    fn blanks_test_modules() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\n\nfn c() {}\n";
        let kept = without_tests(text);
        assert!(kept.contains("fn a()") && kept.contains("fn c()") && !kept.contains("fn b()"));
        assert_eq!(kept.lines().count(), text.lines().count());
    }

    #[test]
    fn a_test_module_elsewhere_hides_nothing_here() {
        let kept = without_tests("#[cfg(test)]\nmod tests;\nfn a() {}\n");
        assert!(kept.contains("fn a()"));
        let kept = without_tests("#[cfg(test)]\nfn only() {\n}\nmod b {\n    fn a() {}\n}\n");
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

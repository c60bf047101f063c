//! No tabs, no trailing blanks, one newline at the end, no markers of unfinished work.

use super::finding::Finding;
use super::source;

const RULE: &str = "text";
const ENDINGS: [&str; 6] = [".rs", ".toml", ".md", ".yml", ".sh", ".py"];
const SCRIPTS: [&str; 1] = [".ci/run"];
/// Split, so that this file passes its own rule.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if !ENDINGS.iter().any(|ending| path.ends_with(ending)) && !SCRIPTS.contains(&path) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut found = |line, message: &str| findings.push(Finding::error(RULE, path, line, message));

    for (index, line) in text.lines().enumerate() {
        if line.contains('\t') {
            found(index + 1, "a tab");
        }
        if line.ends_with(char::is_whitespace) {
            found(index + 1, "blanks at the end of the line");
        }
    }
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        found(text.lines().count(), "the file has to end with one newline");
    }
    for mark in MARKS {
        for line in source::lines_with_word(text, mark) {
            found(line, &format!("{mark}: do it, or write it down where work is planned"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_are_found() {
        assert_eq!(check("a.rs", "a\tb\n").len(), 1);
        assert_eq!(check("a.md", "a \n").len(), 1);
        assert_eq!(check("a.toml", "a").len(), 1);
        assert_eq!(check(".ci/run", "a\n\n").len(), 1);
    }

    #[test]
    fn marks_are_found() {
        for mark in MARKS {
            assert_eq!(check("a.rs", &format!("// {mark}: later\n")).len(), 1, "{mark}");
            assert_eq!(check("a.md", &format!("{mark}\n")).len(), 1, "{mark}");
        }
    }

    #[test]
    fn clean_text_is_fine() {
        assert!(check("a.rs", "// a\nfn b() {}\n").is_empty());
        assert!(check("a.md", "mktemp a.XXXXXX\n").is_empty());
        assert!(check("a.go", "\ta\n").is_empty());
        assert!(check("a.rs", "").is_empty());
    }
}

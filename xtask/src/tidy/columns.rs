//! Lines of documents, and comments of sources, are short enough to be read side by side.
//!
//! Lines that cannot be broken may be longer: rows of tables, links, and what is typed or printed
//! in fenced blocks.

use super::documents;
use super::finding::Finding;

const RULE: &str = "columns";
const COMMENT_MAX: usize = 100;
const DOCUMENT_MAX: usize = 120;
/// Documents that programs write.
const WRITTEN: &str = "bench/results/";

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if path.ends_with(".rs") {
        let is_comment = |line: &str| line.trim_start().starts_with("//");
        let lines = (1..).zip(text.lines());
        return too_long(path, lines.filter(|(_, line)| is_comment(line)), COMMENT_MAX);
    }
    if path.ends_with(".md") && !path.starts_with(WRITTEN) {
        let lines = documents::unfenced_lines(text);
        return too_long(path, lines.filter(|(_, line)| is_breakable(line)), DOCUMENT_MAX);
    }
    Vec::new()
}

fn is_breakable(line: &str) -> bool {
    !line.starts_with('|') && line.split(' ').all(|word| word.chars().count() < DOCUMENT_MAX)
}

fn too_long<'a>(
    path: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
    max: usize,
) -> Vec<Finding> {
    let widths = lines.map(|(at, line)| (at, line.chars().count()));
    let long = widths.filter(|(_, width)| *width > max);
    long.map(|(at, width)| (at, format!("{width} columns; {max} is the most")))
        .map(|(at, message)| Finding::error(RULE, path, at, message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(columns: usize) -> String {
        format!("// {}\n", "x".repeat(columns - 3))
    }

    #[test]
    fn a_long_line_is_found() {
        assert_eq!(check("crates/log/src/a.rs", &words(101)).len(), 1);
        assert_eq!(check("docs/src/log.md", &words(121)).len(), 1);
    }

    #[test]
    fn other_lines_are_fine() {
        assert!(check("crates/log/src/a.rs", &words(100)).is_empty());
        assert!(check("docs/src/log.md", &words(120)).is_empty());
        assert!(check("docs/src/log.md", &format!("| {}", words(140))).is_empty());
        assert!(check("docs/src/log.md", &format!("```\n{}```\n", words(140))).is_empty());
        assert!(check("docs/src/log.md", &format!("- <{}>\n", "x".repeat(140))).is_empty());
        assert!(check("bench/results/kv.md", &words(121)).is_empty());
    }
}

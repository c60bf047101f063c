//! Comments are short enough to be read beside other code.

use super::finding::Finding;

const RULE: &str = "columns";
const COMMENT_MAX: usize = 100;

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let comments = (1..).zip(text.lines()).filter(|(_, line)| line.trim_start().starts_with("//"));
    let long = comments.map(|(at, line)| (at, line.chars().count()));
    let long = long.filter(|(_, width)| *width > COMMENT_MAX);
    long.map(|(at, width)| (at, format!("{width} columns; {COMMENT_MAX} is the most")))
        .map(|(at, message)| Finding::error(RULE, path, at, message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_comment_is_found() {
        let line = |columns: usize| format!("// {}\n", "x".repeat(columns - 3));
        assert_eq!(check("crates/log/src/a.rs", &line(101)).len(), 1);
        assert!(check("crates/log/src/a.rs", &line(100)).is_empty());
    }
}

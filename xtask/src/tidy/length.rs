//! A limit on the length of files. Tests inside a file do not count.

use super::finding::Finding;
use super::source;

const RULE: &str = "length";
const LINES_ASKED: usize = 500;
const LINES_MAX: usize = 800;

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let shipped = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    if !shipped || source::is_test(path) {
        return Vec::new();
    }
    let lines = length(text);
    if lines > LINES_MAX {
        let message = format!("{lines} lines without tests; {LINES_MAX} is the most");
        vec![Finding::error(RULE, path, 0, message)]
    } else if lines > LINES_ASKED {
        let message = format!("{lines} lines without tests: is this still one subject?");
        vec![Finding::warning(RULE, path, 0, message)]
    } else {
        Vec::new()
    }
}

/// The lines of `text` that are outside its test modules.
fn length(text: &str) -> usize {
    let code = source::code(text);
    let inside = |line: &&str| !line.trim().is_empty();
    let all = code.lines().filter(inside).count();
    let shipped = source::without_tests(&code);
    let tests = all - shipped.lines().filter(inside).count();
    // Comments and blank lines among the tests are theirs, but few: code decides.
    text.lines().count().saturating_sub(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(shipped: usize, tests: usize) -> String {
        let tests = "    a();\n".repeat(tests);
        format!("{}#[cfg(test)]\nmod tests {{\n{tests}}}\n", "a();\n".repeat(shipped))
    }

    #[test]
    fn a_long_file_is_asked_and_a_longer_one_refused() {
        let asked = check("crates/log/src/a.rs", &file(501, 0));
        assert!(!asked[0].fails);
        let refused = check("crates/log/src/a.rs", &file(801, 0));
        assert!(refused[0].fails);
        assert!(check("crates/log/src/a.rs", &file(500, 0)).is_empty());
    }

    #[test]
    fn tests_do_not_count() {
        assert!(check("crates/log/src/a.rs", &file(400, 900)).is_empty());
        assert!(check("crates/log/tests/a.rs", &file(900, 0)).is_empty());
    }
}

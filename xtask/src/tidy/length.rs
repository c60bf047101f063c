//! A limit on the length of files. Tests inside a file do not count.

use super::finding::Finding;
use super::source;

const RULE: &str = "length";
const LINES_ASKED: usize = 500;
const LINES_MAX: usize = 800;

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if !source::is_shipped(path) {
        return Vec::new();
    }
    let tests: usize = source::test_modules(text).into_iter().map(Iterator::count).sum();
    let lines = text.lines().count() - tests;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(shipped: usize, tests: usize) -> String {
        let tests = "    fn a() {}\n".repeat(tests);
        format!("{}#[cfg(test)]\nmod tests {{\n{tests}}}\n", "fn a() {}\n".repeat(shipped))
    }

    #[test]
    fn a_long_file_is_asked_and_a_longer_one_refused() {
        let asked = check("crates/log/src/a.rs", &file(501, 9));
        assert!(!asked[0].fails);
        let refused = check("crates/log/src/a.rs", &file(801, 9));
        assert!(refused[0].fails);
        assert!(check("crates/log/src/a.rs", &file(500, 9)).is_empty());
    }

    #[test]
    fn tests_do_not_count() {
        assert!(check("crates/log/src/a.rs", &file(400, 900)).is_empty());
        assert!(check("crates/log/tests/a.rs", &file(900, 0)).is_empty());
    }
}

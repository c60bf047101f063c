//! `unsafe` occurs only in the listed files.

use super::finding::Finding;
use super::source;

/// Each keeps one invariant, and argues for it in `// SAFETY:` comments.
const FILES: [&str; 17] = [
    "crates/consensus/src/memory/cell.rs",
    "crates/kv/src/cache/chunk.rs",
    "crates/kv/src/memory.rs",
    "crates/log/src/runtime/prefetch.rs",
    "crates/consensus/src/memory/value.rs",
    "crates/consensus/src/memory/value_pool.rs",
    "crates/disk/src/aligned.rs",
    "crates/disk/src/process.rs",
    "crates/disk/src/uring/ring.rs",
    "crates/log/src/staging/buffer.rs",
    "crates/loom/src/span_filling.rs",
    "crates/loom/src/stubs.rs",
    "crates/bench/src/measure/allocations.rs",
    "crates/command/src/stdout_at_start.rs",
    "crates/testkit/src/counting_allocator.rs",
    "crates/testkit/src/forked_child.rs",
    "crates/testkit/src/freed_memory.rs",
];
const RULE: &str = "unsafe-files";

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".rs") || FILES.contains(&path) {
        return Vec::new();
    }
    source::lines_with_word(&source::code(text), "unsafe")
        .into_iter()
        .map(|line| {
            let message = format!("`unsafe` outside the files that own it (listed in {})", file!());
            Finding::error(RULE, path, line, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_elsewhere_is_found() {
        let found = check("crates/log/src/reader.rs", "fn a() {\n    unsafe { b() }\n}\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert_eq!(check("crates/log/tests/a.rs", "unsafe impl GlobalAlloc for A {}").len(), 1);
    }

    #[test]
    fn the_word_alone_is_fine() {
        assert!(check("crates/log/src/a.rs", "// unsafe\n#![deny(unsafe_code)]\n").is_empty());
    }

    #[test]
    fn its_owners_may() {
        assert!(check(FILES[0], "unsafe { a() }").is_empty());
    }
}

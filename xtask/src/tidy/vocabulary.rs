//! One word for one thing, and the field's word: see `docs/src/glossary.md`.
//!
//! Refused are names that had a meaning in this project alone. Words that have a usual meaning
//! beside it (`place`, `mark`, `floor`) are refused as names of files only.

use super::finding::Finding;
use super::source;

const RULE: &str = "vocabulary";

/// Parts of identifiers, and what to write.
const IDENTIFIERS: [(&str, &str); 24] = [
    ("adopted", "finalized"),
    ("anew", "again"),
    ("beheaded", "missing_header"),
    ("crew", "callers"),
    ("crowd", "tail_readers"),
    ("flying", "in_flight"),
    ("gather", "commit_delay"),
    ("gathered", "delay_met"),
    ("gathering", "delaying"),
    ("latch", "terminal"),
    ("latched", "terminal"),
    ("nobody", "the actor: no_caller, no_thread"),
    ("runway", "preallocator"),
    ("settle", "resolve"),
    ("settled", "resolved, durable or commit_tracker"),
    ("somebody", "the actor: a_caller, a_process"),
    ("stands", "is_stored, or stored_at"),
    ("stock", "value_pool"),
    ("strays", "orphan_units"),
    ("survey", "scan_dir"),
    ("tells", "reports, prints or returns"),
    ("told", "stored, reported or returned"),
    ("upkeep", "maintenance"),
    ("whoever", "the actor: caller, process"),
];

/// Names of files and folders, in any sense.
const FILES: [(&str, &str); 15] = [
    ("adopt", "finalize"),
    ("crew", "callers"),
    ("crowd", "tail_readers"),
    ("gate", "slot_locks"),
    ("gather", "commit_delay"),
    ("held", "value"),
    ("image", "segment_reader"),
    ("judge", "classify"),
    ("moments", "durable_times"),
    ("runway", "preallocator"),
    ("settled", "commit_tracker"),
    ("stock", "value_pool"),
    ("survey", "scan_dir"),
    ("upkeep", "maintenance"),
    ("walk", "decode"),
];

/// The longest comment line.
const COLUMNS: usize = 100;

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let Some(stem) = path.strip_suffix(".rs") else { return Vec::new() };
    let mut findings = Vec::new();
    for part in stem.split('/') {
        if let Some((_, better)) = FILES.iter().find(|(word, _)| *word == part) {
            let message = format!("no file or folder is named `{part}`: {better}");
            findings.push(Finding::error(RULE, path, 0, message));
        }
    }
    for (index, line) in source::code(text).lines().enumerate() {
        for (word, better) in IDENTIFIERS {
            if has_part(line, word) {
                let message = format!("`{word}` means nothing to a reader: {better}");
                findings.push(Finding::error(RULE, path, index + 1, message));
            }
        }
    }
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if line.trim_start().starts_with("//") && columns > COLUMNS {
            let message = format!("a comment of {columns} columns; {COLUMNS} is the most");
            findings.push(Finding::error(RULE, path, index + 1, message));
        }
    }
    findings
}

/// Whether an identifier in this line has the word among its parts: `came_told`, `ToldBy`.
fn has_part(line: &str, word: &str) -> bool {
    let identifiers = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    identifiers.flat_map(parts).any(|part| part == word)
}

/// The words of an identifier, in lower case.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && parts.last().is_some_and(|part| !part.is_empty())) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.extend(c.to_lowercase());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_word_is_found_in_each_kind_of_name() {
        for code in ["let runway = 1;", "fn take_runway() {}", "struct RunwayState;"] {
            let found = check("crates/log/src/a.rs", &format!("{code}\n"));
            assert!(found[0].to_string().contains("preallocator"), "{code}");
        }
        assert_eq!(check("crates/log/tests/gather/mod.rs", "").len(), 1);
    }

    #[test]
    fn an_old_word_is_found_in_tests_and_tools() {
        for path in [
            "crates/log/src/a.rs",
            "crates/log/tests/a.rs",
            "crates/consensus/examples/a.rs",
            "crates/loom/src/a.rs",
            "crates/testkit/src/a.rs",
            "bench/src/a.rs",
            "examples/paxos/src/a.rs",
            "fuzz/fuzz_targets/a.rs",
            "xtask/src/a.rs",
        ] {
            assert_eq!(check(path, "let oldest_told = 1;\n").len(), 1, "{path}");
        }
    }

    #[test]
    fn comments_and_longer_words_are_fine() {
        assert!(check("crates/log/src/a.rs", "// the runway\nlet unsettling = 1;\n").is_empty());
    }

    #[test]
    fn a_long_comment_is_found() {
        let line = |columns: usize| format!("// {}\n", "x".repeat(columns - 3));
        assert_eq!(check("crates/log/src/a.rs", &line(101)).len(), 1);
        assert!(check("crates/log/src/a.rs", &line(100)).is_empty());
    }
}

//! Prose says who does what, in the field's words: phrases that this project once used for
//! something else, or that leave out the actor, are refused with their replacement.
//!
//! The rule reads documents, and comments and literals of sources, tests included. Text
//! between backticks and fenced blocks of documents are not prose.

use super::finding::Finding;
use super::source;

const RULE: &str = "phrases";

/// Phrases in lower case, and what to write.
const PHRASES: [(&str, &str); 36] = [
    ("anew", "again"),
    ("anybody", "the actor: a caller, a process, a reader"),
    ("are told", "are notified, get or are reported"),
    ("as told", "as specified, or as configured"),
    ("behind the end", "past the end"),
    ("beheaded", "without a valid header"),
    ("everybody", "the actor: every caller, every reader"),
    ("goes on", "continues"),
    ("in silence", "silently"),
    ("is told", "is notified, gets or is reported"),
    ("lie behind", "are after"),
    ("lies behind", "is after"),
    ("nobody", "the actor: no caller, no process, no reader"),
    ("of the house", "of the project"),
    ("planted fault", "mutation"),
    ("planted faults", "mutations"),
    ("put aside", "quarantined, or written to a temporary file"),
    ("puts aside", "quarantines, or writes to a temporary file"),
    ("rests on", "depends on"),
    ("runway", "preallocator"),
    ("settled", "resolved, or durable"),
    ("somebody", "the actor: a caller, another process"),
    ("sound header", "valid header"),
    ("stand behind", "are after"),
    ("stand in", "are in, or replace"),
    ("stands behind", "is after"),
    ("stands for", "represents, or replaces"),
    ("stands in", "is in, or replaces"),
    ("stands on", "depends on"),
    ("tell of", "report"),
    ("tells of", "reports"),
    ("upkeep", "maintenance"),
    ("what stands", "what is stored"),
    ("whoever", "the actor: the caller that, the process that"),
    ("without a word", "silently"),
    ("was told", "was notified, got or was reported"),
];

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let prose = if path.ends_with(".md") {
        document(text)
    } else if path.ends_with(".rs") {
        comments_and_literals(text)
    } else {
        return Vec::new();
    };
    let words = words(&prose);
    let mut findings = Vec::new();
    for (phrase, better) in PHRASES {
        let wanted: Vec<&str> = phrase.split(' ').collect();
        for found in words.windows(wanted.len()) {
            if found.iter().zip(&wanted).all(|((_, word), wanted)| word == wanted) {
                let message = format!("\"{phrase}\": write {better}");
                findings.push(Finding::error(RULE, path, found[0].0, message));
            }
        }
    }
    findings
}

/// A document without its fenced blocks and without what is between backticks.
fn document(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::with_capacity(text.len());
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    without_code_spans(&prose)
}

/// The comments and literals of a source.
fn comments_and_literals(text: &str) -> String {
    let code = source::code(text);
    let prose = text.chars().zip(code.chars()).map(|(c, code)| match code {
        '\n' => '\n',
        ' ' => c,
        // Code between two comments ends the phrase.
        _ => '.',
    });
    without_code_spans(&prose.collect::<String>())
}

/// Replaces what is between two backticks of one line.
fn without_code_spans(text: &str) -> String {
    let mut inside = false;
    let kept = text.chars().map(|c| {
        if c == '`' {
            inside = !inside;
            return '.';
        }
        inside &= c != '\n';
        if inside { '.' } else { c }
    });
    kept.collect()
}

/// The words in lower case with their lines, from 1. Punctuation is a word, so that no phrase spans
/// it; line breaks and comment markers are none.
fn words(prose: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (index, line) in prose.lines().enumerate() {
        let mut word = String::new();
        for c in line.trim_start_matches(['/', '!', ' ']).chars().chain([' ']) {
            if c.is_alphanumeric() || c == '-' || c == '\'' {
                word.extend(c.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                words.push((index + 1, std::mem::take(&mut word)));
            }
            if c != ' ' {
                words.push((index + 1, c.to_string()));
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_in_each_kind_of_prose() {
        for (path, text) in [
            ("docs/src/log.md", "The caller is told.\n"),
            ("docs/src/log.md", "The caller is\ntold.\n"),
            ("crates/log/src/a.rs", "/// Nobody waits.\nfn a() {}\n"),
            ("crates/log/src/a.rs", "//! The log goes\n//! on behind it.\n"),
            ("crates/log/src/a.rs", "fn a() { b(\"passed over in silence\") }\n"),
        ] {
            let found = check(path, text);
            assert_eq!(found.len(), 1, "{path}: {text}");
            assert!(found[0].to_string().contains("write "), "{}", found[0]);
        }
        assert_eq!(check("docs/a.md", "a\nwithout a word\n")[0].line, 2);
    }

    #[test]
    fn a_phrase_is_found_in_tests_and_tools() {
        for path in [
            "crates/log/tests/a.rs",
            "crates/log/src/core/tests.rs",
            "crates/loom/src/a.rs",
            "crates/testkit/src/a.rs",
            "bench/src/a.rs",
            "examples/paxos/src/a.rs",
            "fuzz/fuzz_targets/a.rs",
        ] {
            let (phrase, _) = PHRASES[0];
            assert_eq!(check(path, &format!("// It {phrase} b.\n")).len(), 1, "{path}");
            let message = format!("fn a() {{ b(\"{phrase}\") }}\n");
            assert_eq!(check(path, &message).len(), 1, "{path}");
        }
    }

    #[test]
    fn other_text_is_fine() {
        for (path, text) in [
            ("docs/src/log.md", "Commits in flight; a reader lags behind.\n"),
            ("docs/src/log.md", "The field `settled` is old.\n```\nnobody\n```\n"),
            ("docs/src/log.md", "What is. Told twice, unsettled.\n"),
            ("crates/log/src/a.rs", "let nobody = 1;\n"),
            ("crates/log/src/a.rs", "// This is\nlet a = told(); // told\n"),
            ("docs/a.toml", "nobody\n"),
        ] {
            assert!(check(path, text).is_empty(), "{path}: {text}");
        }
    }
}

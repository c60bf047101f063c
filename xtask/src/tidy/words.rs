//! One word for one thing, and the field's word: refused words have their replacement in
//! `xtask/words.toml`.
//!
//! Names are those of sources, tests included, and of their files. Prose is that of documents, and
//! of comments and literals in sources, without what is between backticks or fences.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::documents;
use super::finding::Finding;
use super::source;
use super::tree::Tree;

const RULE: &str = "words";
const FILE: &str = "xtask/words.toml";

/// Refused words, and what to write.
pub type List = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    identifiers: List,
    files: List,
    phrases: List,
    /// First words of doc comments.
    pub openings: List,
    /// Whole names of types.
    pub types: List,
}

impl Words {
    pub fn read(tree: &Tree) -> Result<Self, toml::de::Error> {
        toml::from_str(tree.text(FILE).unwrap_or_default())
    }
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let words = match Words::read(tree) {
        Ok(words) => words,
        Err(error) => return vec![Finding::error(RULE, FILE, 0, error.to_string())],
    };
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        let mut found = |line, kind: &str, (word, better): (&String, &String)| {
            let message = format!("the {kind} `{word}`: write {better}");
            findings.push(Finding::error(RULE, path, line, message));
        };
        let prose = if let Some(stem) = path.strip_suffix(".rs") {
            for part in stem.split('/') {
                words.files.get_key_value(part).into_iter().for_each(|word| found(0, "name", word));
            }
            let code = source::code(text);
            for (at, line) in (1..).zip(code.lines()) {
                let names = parts(line);
                let refused = names.iter().filter_map(|name| words.identifiers.get_key_value(name));
                refused.for_each(|word| found(at, "word", word));
            }
            let prose = comments_and_literals(text, &code);
            words_of((1..).zip(prose.lines()))
        } else if path.ends_with(".md") {
            words_of(documents::unfenced_lines(text))
        } else {
            continue;
        };
        let joined: String = prose.iter().flat_map(|(_, word)| [" ", word]).chain([" "]).collect();
        for phrase in &words.phrases {
            for (at, _) in joined.match_indices(&format!(" {} ", phrase.0)) {
                found(prose[joined[..at].matches(' ').count()].0, "phrase", phrase);
            }
        }
    }
    findings
}

/// The words of the identifiers of a line, in lower case: those of `came_told`, `ToldBy` and
/// `TOLD_MAX`.
fn parts(code: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut before = ' ';
    for c in code.chars() {
        let starts = !c.is_alphabetic() || (c.is_uppercase() && before.is_lowercase());
        spaced.extend(starts.then_some(' '));
        spaced.extend(c.to_lowercase().filter(|c| c.is_alphabetic()));
        before = c;
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// The comments and literals of a source whose code is `code`. Code between two comments ends a
/// phrase.
fn comments_and_literals(text: &str, code: &str) -> String {
    let prose = text.chars().zip(code.chars());
    prose.map(|(c, code)| if matches!(code, ' ' | '\n') { c } else { '.' }).collect()
}

/// Replaces what is between two backticks of a line.
fn without_code_spans(line: &str) -> String {
    let spans = (0..).zip(line.split('`'));
    let prose = spans.map(|(at, span)| if at % 2 == 0 { span } else { "." });
    prose.collect::<Vec<_>>().join(".")
}

/// The words in lower case, each with the number of its line. Punctuation is a word, so that no
/// phrase spans it; code spans are punctuation; line breaks and comment markers are none.
fn words_of<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '\'';
    let mut words: Vec<(usize, String)> = Vec::new();
    for (at, line) in lines {
        let mut inside = false;
        for c in without_code_spans(line).trim_start_matches(['/', '!', ' ']).chars() {
            match words.last_mut().filter(|_| inside && is_word(c)) {
                Some((_, word)) => word.extend(c.to_lowercase()),
                None if c != ' ' => words.push((at, c.to_lowercase().collect())),
                None => {}
            }
            inside = is_word(c);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: (&str, &str) = (
        FILE,
        "[identifiers]\nwidget = 'gadget'\n[files]\nwidgets = 'gadgets'\n[phrases]\n\
         fidgets = 'moves'\n'goes off' = 'rings'\n[openings]\n[types]\n",
    );

    fn check_file(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::from_files(&[WORDS, (path, text)]))
    }

    const EVERYWHERE: [&str; 9] = [
        "crates/log/src/a.rs",
        "crates/log/src/core/tests.rs",
        "crates/log/tests/a.rs",
        "crates/consensus/examples/a.rs",
        "crates/testkit/src/a.rs",
        "bench/src/a.rs",
        "examples/paxos/src/a.rs",
        "fuzz/fuzz_targets/a.rs",
        "xtask/src/a.rs",
    ];

    #[test]
    fn a_word_is_found_in_each_kind_of_name() {
        for code in ["static WIDGET: u8 = 1;", "fn take_widget() {}", "struct WidgetState;"] {
            let found = check_file("crates/log/src/a.rs", &format!("\n{code}\n"));
            assert!(found[0].to_string().contains("a.rs:2") && found.len() == 1, "{code}");
            assert!(found[0].message.contains("gadget"), "{code}");
        }
        assert_eq!(check_file("crates/log/tests/widgets/mod.rs", "").len(), 1);
    }

    #[test]
    fn words_and_phrases_are_found_in_tests_and_tools() {
        for path in EVERYWHERE {
            assert_eq!(check_file(path, "fn old_widget() {}\n").len(), 1, "{path}");
            assert_eq!(check_file(path, "// It fidgets b.\n").len(), 1, "{path}");
            assert_eq!(check_file(path, "fn a() { b(\"fidgets\") }\n").len(), 1, "{path}");
        }
    }

    #[test]
    fn longer_words_and_names_are_fine() {
        for code in ["// the widget\nfn a() {}\n", "fn widgetry() {}\n", "fn a() { \"widget\"; }\n"]
        {
            assert!(check_file("crates/log/src/widget.rs", code).is_empty(), "{code}");
        }
        assert!(check_file("docs/src/widgets.md", "").is_empty());
    }

    #[test]
    fn a_phrase_is_found_in_each_kind_of_prose() {
        for (path, text) in [
            ("docs/src/log.md", "The bell goes off.\n"),
            ("docs/src/log.md", "The bell goes\noff.\n"),
            ("crates/log/src/a.rs", "/// Fidgets here.\nfn a() {}\n"),
            ("crates/log/src/a.rs", "//! The bell goes\n//! off after it.\n"),
            ("crates/log/src/a.rs", "fn a() { b(\"it goes off\") }\n"),
        ] {
            let found = check_file(path, text);
            assert_eq!(found.len(), 1, "{path}: {text}");
            assert!(found[0].message.contains("write "), "{}", found[0]);
        }
        assert_eq!(check_file("docs/a.md", "a\nit goes off\n")[0].line, 2);
    }

    #[test]
    fn other_prose_is_fine() {
        for (path, text) in [
            ("docs/src/log.md", "It goes, off and on.\n"),
            ("docs/src/log.md", "The field `fidgets` is old.\n```\nfidgets\n```\n"),
            ("crates/log/src/a.rs", "static FIDGETS: u8 = 1;\n"),
            ("crates/log/src/a.rs", "// It goes\nfn a() {} // off\n"),
            ("docs/a.toml", "fidgets\n"),
        ] {
            assert!(check_file(path, text).is_empty(), "{path}: {text}");
        }
    }

    #[test]
    fn the_words_of_the_project_can_be_read() {
        assert_eq!(check(&Tree::from_files(&[(FILE, include_str!("../../words.toml"))])), []);
        assert_eq!(check(&Tree::from_files(&[(FILE, "[identifiers]\n")])).len(), 1);
    }
}

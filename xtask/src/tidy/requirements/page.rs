//! `docs/requirements.md`, as it is written from the tests, the mutations and the list.

use super::at_tests::Test;
use super::list::List;
use crate::mutations::Mutation;

/// Where the page is, from the root.
pub const FILE: &str = "docs/requirements.md";
/// The longest line.
pub const COLUMNS: usize = 120;

const HEAD: &str = "\
# What is required, and the test that shows it

`cargo xtask requirements` writes this page; do not edit it. Each requirement has its tests, and how they were seen
failing: by the mutations of [mutations.toml](mutations.toml), or as a sentence says. A note says what no test shows,
and where a decision took a requirement's place. `cargo xtask tidy` fails when the page is not up to date;
`cargo xtask mutate` checks that the tests still catch the mutations.

To add a requirement:

1. Add its id to its component in [requirements.toml](requirements.toml), and a note if it needs one.
2. Name it at each test that shows it: `/// Requirements: W-1, W-3a.` is the last line of the doc comment.
3. Name it in the `requirements` of each mutation that a test of it was seen to catch.
4. Run `cargo xtask requirements`.
";

/// The page; `tests` are in the order in which it names them.
pub fn of(list: &List, tests: &[Test], mutations: &[Mutation]) -> String {
    let mut page = HEAD.to_owned();
    for component in &list.components {
        page.push_str(&format!("\n## {}: {}\n", component.prefix, component.title));
        for id in &component.ids {
            page.push_str(&format!("\n### {id}\n\n"));
            for test in tests.iter().filter(|test| test.ids.contains(id)) {
                page.push_str(&item(test));
            }
            let note = list.notes.get(id);
            if let Some(text) = note.and_then(|note| note.note.as_ref()) {
                page.push_str(&wrapped(text));
            }
            let named = mutations.iter().filter(|mutation| mutation.requirements.contains(id));
            let named: Vec<_> = named.map(|mutation| format!("`{}`", mutation.id)).collect();
            if !named.is_empty() {
                page.push_str(&wrapped(&format!("Mutations: {}", named.join(", "))));
            }
            if let Some(seen) = note.and_then(|note| note.seen_failing.as_ref()) {
                page.push_str(&wrapped(&format!("Seen failing: {seen}")));
            }
        }
    }
    page
}

/// A test on one line; its name on a second one where the line would be too long.
fn item(Test { path, name, .. }: &Test) -> String {
    let line = format!("- `{path}::{name}`\n");
    if line.trim_end().len() <= COLUMNS { line } else { format!("- `{path}`\n  `{name}`\n") }
}

/// An item of a list, on as many lines as it needs.
fn wrapped(text: &str) -> String {
    let mut lines = vec!["-".to_owned()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutations;
    use crate::tidy::requirements::list;

    fn page(test: &str, mutations: &str, note: &str) -> String {
        let list = "[[component]]\nprefix = 'W'\ntitle = 'Log'\nids = ['W-1']\n";
        let list = list::parse(&format!("{list}{note}")).unwrap();
        let path = "crates/log/tests/crash.rs".to_owned();
        let test = Test { path, line: 1, name: test.to_owned(), ids: vec!["W-1".to_owned()] };
        of(&list, &[test], &mutations::parse(mutations).unwrap())
    }

    fn mutation(id: &str) -> String {
        let place = "file = 'x.rs'\nfind = 'a'\nreplace = 'b'\ntest = ''\n";
        format!("[[mutation]]\nid = '{id}'\n{place}requirements = ['W-1']\n")
    }

    #[test]
    fn a_requirement_has_its_tests_mutations_and_note() {
        let note = "[[note]]\nid = 'W-1'\nnote = 'See `a`.'\nseen_failing = 'by hand'\n";
        let mutations = mutation("no-sync") + &mutation("one-sync");
        let entry = "\n## W: Log\n\n### W-1\n\n- `crates/log/tests/crash.rs::nothing_lost`\n\
                     - See `a`.\n- Mutations: `no-sync`, `one-sync`\n- Seen failing: by hand\n";
        assert_eq!(page("nothing_lost", &mutations, note), format!("{HEAD}{entry}"));
    }

    #[test]
    fn no_line_is_longer_than_the_most() {
        let mutations: String = (0..40).map(|n| mutation(&format!("fault-number-{n}"))).collect();
        let note = format!("[[note]]\nid = 'W-1'\nnote = '{}'\n", "four ".repeat(60));
        for letters in 85..95 {
            let name = "n".repeat(letters);
            let page = page(&name, &mutations, &note);
            assert!(page.lines().all(|line| line.len() <= COLUMNS), "{page}");
            assert!(page.contains(&name) && page.contains("`fault-number-39`"), "{page}");
            assert_eq!(page.matches("four").count(), 60);
        }
    }
}

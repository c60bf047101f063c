//! The ids in the doc comments of tests: `/// Requirements: W-1, W-3a.` is the last line.

use super::list;
use crate::tidy::source;

const MARKER: &str = "/// Requirements:";

/// A test that names the requirements that it shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Test {
    pub path: String,
    /// Of its `Requirements:`.
    pub line: usize,
    pub name: String,
    pub ids: Vec<String>,
}

/// A `Requirements:` that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub line: usize,
    pub message: String,
}

/// The tests of a file that name requirements.
pub fn of(path: &str, text: &str) -> Vec<Result<Test, Unreadable>> {
    if !path.ends_with(".rs") || !text.contains(MARKER) {
        return Vec::new();
    }
    let text = source::code_and_comments(text);
    let mut rest = text.as_str();
    let mut line = 0;
    let mut found = Vec::new();
    while let Some((this, below)) = rest.split_once('\n') {
        (rest, line) = (below, line + 1);
        let Some(listed) = this.trim().strip_prefix(MARKER) else { continue };
        let test = ids(listed).and_then(|ids| {
            let name = test_below(below).ok_or("is not the last doc line of a test")?;
            Ok(Test { path: path.to_owned(), line, name: name.to_owned(), ids })
        });
        let unreadable = |why| Unreadable { line, message: format!("`Requirements:` {why}") };
        found.push(test.map_err(unreadable));
    }
    found
}

fn ids(listed: &str) -> Result<Vec<String>, &'static str> {
    const FORM: &str = "has to read as `/// Requirements: W-1, W-3a.`";
    let listed = listed.strip_prefix(' ').and_then(|listed| listed.strip_suffix('.'));
    let ids: Vec<_> = listed.ok_or(FORM)?.split(", ").map(str::to_owned).collect();
    let twice = (1..ids.len()).any(|at| ids[..at].contains(&ids[at]));
    match ids.iter().all(|id| list::is_id(id)) {
        false => Err(FORM),
        true if twice => Err("names an id twice"),
        true => Ok(ids),
    }
}

/// The name of the test that `text` begins with: attributes, one of them a test's, and `fn name`.
fn test_below(text: &str) -> Option<&str> {
    let mut rest = text.trim_start();
    let mut is_test = false;
    while let Some(attribute) = rest.strip_prefix("#[") {
        let (attribute, below) = attribute.split_at(closing_bracket(attribute)?);
        let name = attribute.split(['(', ' ']).next().unwrap_or_default();
        is_test |= name.rsplit("::").next() == Some("test");
        rest = below[1..].trim_start();
        while rest.starts_with("//") && !rest.starts_with("///") {
            rest = rest.split_once('\n')?.1.trim_start();
        }
    }
    let name = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    is_test.then_some(&name[..end])
}

/// Where the bracket that was opened before `text` is closed.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<(String, Vec<String>), usize>> {
        let found = of("crates/log/tests/crash.rs", text).into_iter();
        found.map(|one| one.map(|test| (test.name, test.ids)).map_err(|why| why.line)).collect()
    }

    #[test]
    fn ids_are_those_of_the_test_below() {
        for head in [
            "/// Requirements: W-1, W-3a.\n#[test]\n",
            "/// A crash.\n/// Requirements: W-1, W-3a.\n#[test]\n#[ignore = \"slow ]\"]\n",
            "/// Requirements: W-1, W-3a.\n#[cfg(any(unix, windows))] // Why.\n#[tokio::test]\nasync ",
            "    /// Requirements: W-1, W-3a.\n    #[test]\n    ",
        ] {
            let ids = vec!["W-1".to_owned(), "W-3a".to_owned()];
            let text = format!("{head}fn nothing_lost(a: u64) {{}}\n");
            assert_eq!(read(&text), [Ok(("nothing_lost".to_owned(), ids))], "{head}");
        }
    }

    #[test]
    fn ids_that_cannot_be_read_are_found() {
        for listed in ["", " ", " W-1", " W-1 W-2.", " W-1; a crash.", " W-1, W-1.", " w-1."] {
            let text = format!("\n/// Requirements:{listed}\n#[test]\nfn nothing_lost() {{}}\n");
            assert_eq!(read(&text), [Err(2)], "{listed}");
        }
    }

    #[test]
    fn ids_without_a_test_are_found() {
        for below in [
            "fn helper() {}\n",
            "#[cfg(test)]\nfn helper() {}\n",
            "/// More.\n#[test]\nfn nothing_lost() {}\n",
            "#[test]\nmod nothing {}\n",
            "",
        ] {
            assert_eq!(read(&format!("/// Requirements: W-1.\n{below}")), [Err(1)], "{below}");
        }
    }

    #[test]
    fn only_doc_comments_name_ids() {
        assert_eq!(read("let a = \"\n/// Requirements: W-1.\n\";\n"), []);
        assert_eq!(read("// Requirements: W-1.\n#[test]\nfn nothing_lost() {}\n"), []);
        assert_eq!(of("docs/a.md", "/// Requirements: W-1.\n"), []);
    }
}

//! Links between documents resolve.

use super::documents;
use super::finding::Finding;
use super::tree::Tree;

const RULE: &str = "links";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files().filter(|(path, _)| {
        path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/"))
    });
    documents.flat_map(|(path, text)| in_document(path, text, &|name| tree.has(name))).collect()
}

fn in_document(path: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in documents::unfenced_lines(text) {
        for target in targets(&without_code(line)) {
            let leads = resolve(path, &target).is_none_or(|name| name.is_empty() || exists(&name));
            if !leads {
                let message = format!("the link to {target} leads nowhere");
                findings.push(Finding::error(RULE, path, at, message));
            }
        }
    }
    findings
}

/// `line` without what is between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The targets of `[text](target)` and of `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line.strip_prefix('[').and_then(|rest| {
        let (name, target) = rest.split_once("]: ")?;
        (!name.contains(']')).then_some(target.trim())
    });
    inline.chain(definition).map(str::to_owned).collect()
}

/// The path from the root that `target` refers to, in the document at `path`; `None` if it is
/// not a local one.
fn resolve(path: &str, target: &str) -> Option<String> {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    if file.is_empty() || file.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                // Above the root there is nothing of ours.
                if parts.pop().is_none() {
                    return Some(target.to_owned());
                }
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(&Tree::from_files(&[
            ("README.md", "[book](docs/src/tour.md)\n"),
            ("docs/src/tour.md", text),
            ("docs/src/format.md", ""),
        ]))
        .len()
    }

    #[test]
    fn a_dead_link_is_found() {
        assert_eq!(found("see [the format](fromat.md)\n"), 1);
        assert_eq!(found("[a](format.md) and [b](../gone/)\n"), 1);
        assert_eq!(found("[gone]: gone.md\n"), 1);
        assert_eq!(found("[above](../../../README.md)\n"), 1);
    }

    #[test]
    fn live_links_are_fine() {
        assert_eq!(found("[a](format.md#torn-tail) [b](../../README.md) [c](../src/)\n"), 0);
        assert_eq!(found("[a](https://example.org/x.md) [b](#here) [c](mailto:a@b.c)\n"), 0);
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(found("`a[0](b)`\n```\n[a](gone.md)\n```\n"), 0);
    }
}

//! The figures of the experiment's page and picture are those of the recorded results.

use super::finding::Finding;
use super::tree::Tree;
use crate::experiment::{self, PAGE, PICTURE, RESULTS};

const RULE: &str = "experiment";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let text = |path: &str| tree.text(path).unwrap_or_default();
    if tree.text(PAGE).is_none() && tree.text(RESULTS).is_none() {
        return Vec::new();
    }
    match experiment::differences(text(RESULTS), text(PAGE), text(PICTURE)) {
        Ok(found) => found
            .into_iter()
            .map(|(path, line)| {
                let message =
                    format!("does not follow from {RESULTS}: run `cargo xtask experiment`");
                Finding::error(RULE, path, line, message)
            })
            .collect(),
        Err(error) => vec![Finding::error(RULE, RESULTS, 0, format!("{error:#}"))],
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_figure_that_was_not_measured_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let (results, page, picture) = (read(RESULTS), read(PAGE), read(PICTURE));
        let found = |page: &str, picture: &str| {
            check(&Tree::from_files(&[(RESULTS, &results), (PAGE, page), (PICTURE, picture)]))
        };
        assert!(found(&page, &picture).is_empty());
        let (table, after) = page.split_once("| `always` | nothing | ").unwrap();
        let invented = found(&format!("{table}| `always` | nothing | 9{after}"), &picture);
        assert_eq!((invented.len(), &*invented[0].path), (1, PAGE));
        assert_eq!(found(&page, "<svg/>").len(), 1);
        assert_eq!(check(&Tree::from_files(&[(PAGE, &page)])).len(), 1);
    }
}

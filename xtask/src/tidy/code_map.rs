//! ARCHITECTURE.md's code map names every crate, and every client in another language.

use super::finding::Finding;
use super::tree::Tree;

const RULE: &str = "code-map";
const FILE: &str = "ARCHITECTURE.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(FILE) else {
        return vec![Finding::error(RULE, FILE, 0, "is missing")];
    };
    let crates = tree.crates().map(|name| format!("crates/{name}"));
    let clients = tree.clients().map(|name| format!("clients/{name}"));
    crates
        .chain(clients)
        .filter(|folder| !text.contains(&format!("`{folder}`")))
        .map(|folder| Finding::error(RULE, FILE, 0, format!("does not name {folder}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: &str) -> usize {
        let manifest = "crates/log/Cargo.toml";
        check(&Tree::from_files(&[(FILE, map), (manifest, ""), ("crates/log/fuzz/Cargo.toml", "")]))
            .len()
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        assert_eq!(found("`crates/logger` and `crates/disk`\n"), 1);
        assert_eq!(check(&Tree::from_files(&[])).len(), 1);
    }

    #[test]
    fn a_client_that_is_not_on_the_map_is_found() {
        let tree = |map| Tree::from_files(&[(FILE, map), ("clients/go/tls/tls.go", "")]);
        assert_eq!(check(&tree("`clients/python`\n")).len(), 1);
        assert!(check(&tree("`clients/go`\n")).is_empty());
    }

    #[test]
    fn a_crate_on_the_map_is_fine() {
        assert_eq!(found("`crates/log` keeps records\n"), 0);
    }
}

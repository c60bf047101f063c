//! `docs/mutations.toml` can be applied: each mutation's text occurs once in its file.

use super::finding::Finding;
use super::tree::Tree;
use crate::mutations;

const RULE: &str = "mutation-list";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let error = |message: String| Finding::error(RULE, mutations::FILE, 0, message);
    let Some(text) = tree.text(mutations::FILE) else { return Vec::new() };
    let mutations = match mutations::parse(text) {
        Ok(mutations) => mutations,
        Err(parse) => return vec![error(format!("{parse:#}"))],
    };
    mutations
        .iter()
        .filter_map(|mutation| match tree.text(&mutation.file) {
            None => Some(error(format!("mutation {}: there is no {}", mutation.id, mutation.file))),
            Some(sound) => mutation.applied_to(sound).err().map(|why| error(why.to_string())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> usize {
        let list = "[[mutation]]\nid='a'\nfile='x.rs'\nfind='sync()'\nreplace=''\ntest=''\n";
        check(&Tree::of(&[(mutations::FILE, list), ("x.rs", source)])).len()
    }

    #[test]
    fn a_mutation_without_its_place_is_found() {
        assert_eq!(found("flush()"), 1);
        assert_eq!(found("sync() sync()"), 1);
        assert_eq!(check(&Tree::of(&[(mutations::FILE, "[[mutation]]\n")])).len(), 1);
    }

    #[test]
    fn a_mutation_in_its_place_is_fine() {
        assert_eq!(found("sync()"), 0);
    }
}

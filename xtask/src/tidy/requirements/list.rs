//! `docs/requirements.toml`: the ids of the requirements, and notes on some of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Where the requirements are listed, from the root.
pub const FILE: &str = "docs/requirements.toml";

#[derive(Debug)]
pub struct List {
    pub components: Vec<Component>,
    pub notes: BTreeMap<String, Note>,
}

/// The requirements whose ids have the same letters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    pub prefix: String,
    pub title: String,
    pub ids: Vec<String>,
}

/// What the tests and mutations of a requirement do not say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    id: String,
    /// Printed beside the tests, or in their place.
    pub note: Option<String>,
    /// How a test was seen failing, if not by a mutation.
    pub seen_failing: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    component: Vec<Component>,
    #[serde(default)]
    note: Vec<Note>,
}

/// Reads the list and checks that its ids belong together.
pub fn parse(text: &str) -> Result<List> {
    let document: Document = toml::from_str(text).context(FILE)?;
    let mut ids = BTreeSet::new();
    for Component { prefix, ids: of_component, .. } in &document.component {
        for id in of_component {
            let fits = is_id(id) && id.split('-').next() == Some(prefix);
            ensure!(fits, "{FILE}: {id} is no id of the component {prefix}");
            ensure!(ids.insert(id), "{FILE}: the id {id} is there twice");
        }
    }
    let mut notes = BTreeMap::new();
    for note in document.note {
        let id = note.id.clone();
        ensure!(ids.contains(&id), "{FILE}: a note names {id}, which is in no component");
        let texts = [&note.note, &note.seen_failing];
        let written = |text: &&Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        ensure!(texts.iter().any(written), "{FILE}: the note of {id} says nothing");
        let first = notes.insert(id.clone(), note).is_none();
        ensure!(first, "{FILE}: {id} has two notes");
    }
    Ok(List { components: document.component, notes })
}

impl List {
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.components.iter().flat_map(|component| &component.ids).map(String::as_str)
    }
}

impl Note {
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        [&self.note, &self.seen_failing].into_iter().flatten().map(String::as_str)
    }
}

/// Whether `text` has the form of an id: `W-3`, `FT-12a`.
pub fn is_id(text: &str) -> bool {
    let Some((letters, number)) = text.split_once('-') else { return false };
    let digits = number.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(number);
    !letters.is_empty()
        && letters.chars().all(|c| c.is_ascii_uppercase())
        && !digits.is_empty()
        && digits.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[component]]\nprefix = 'W'\ntitle = 'Log'\nids = ['W-1', 'W-1a']\n";

    #[test]
    fn ids_are_unique_and_fit_their_component() {
        assert_eq!(parse(ONE).unwrap().ids().collect::<Vec<_>>(), ["W-1", "W-1a"]);
        assert!(parse(&format!("{ONE}{ONE}")).is_err(), "the same id twice");
        assert!(parse(&ONE.replace("'W'", "'L'")).is_err(), "another component");
        for malformed in ["W1", "W-", "W-a", "W-1ab", "w-1", "-1"] {
            assert!(parse(&ONE.replace("W-1a", malformed)).is_err(), "{malformed}");
        }
    }

    #[test]
    fn notes_say_something_of_a_listed_id() {
        let note = |note: &str| parse(&format!("{ONE}[[note]]\n{note}\n"));
        assert!(note("id = 'W-1'\nnote = 'replaced'").is_ok());
        assert!(note("id = 'W-1'\nseen_failing = 'by hand'").is_ok());
        assert!(note("id = 'W-2'\nnote = 'replaced'").is_err(), "an unknown id");
        assert!(note("id = 'W-1'\nnote = ''").is_err(), "an empty note");
        assert!(note("id = 'W-1'\nnoet = 'replaced'").is_err(), "a misspelt key");
        let twice = "id = 'W-1'\nnote = 'a'\n[[note]]\nid = 'W-1'\nnote = 'b'";
        assert!(note(twice).is_err(), "two notes");
    }
}

//! The documents say what is stable and what is not, and what they say is so.

const README: &str = include_str!("../../../../../README.md");
const GUIDE: &str = include_str!("../../../../../docs/src/log.md");
const FORMAT: &str = include_str!("../../../../log/src/format/block.rs");

/// The text after a heading, up to the next.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let rest = text.split_once(heading).map_or("", |(_, rest)| rest);
    rest.split("\n## ").next().unwrap_or(rest)
}

#[test]
fn documents_state_what_is_stable() {
    let stable = section(GUIDE, "## What is stable");
    assert!(FORMAT.contains("VERSION: u32 = 2;"), "then the guide has another number to name");
    for reported in ["format on disk is version 2", "may still change", "until 1.0"] {
        assert!(stable.contains(reported), "{reported}");
    }
    // The API is called young for as long as it is.
    assert!(env!("CARGO_PKG_VERSION").starts_with("0."));
    let status = section(README, "## Status");
    for reported in ["Not finished", "What is stable", "docs/src/log.md#what-is-stable"] {
        assert!(status.contains(reported), "{reported}");
    }
}

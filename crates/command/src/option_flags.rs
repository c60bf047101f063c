//! The flags that set the options of the library, so that an error about an option names the flag.

/// Every option that [`esker_log::Error::InvalidOption`] and
/// [`esker_consensus::Error::InvalidOption`] can name, with the flag that sets it. An option that
/// no command exposes has no flag.
const FLAGS: [(&str, Option<&str>); 25] = [
    ("buffer_size", Some("--buffer-size")),
    ("buffers", Some("--buffers")),
    ("checkpoint_every", None),
    ("commits_in_flight", Some("--commits-in-flight")),
    ("component", None),
    ("count", None),
    ("direct", Some("--direct")),
    ("index_bytes", Some("--index-bytes")),
    ("index_records", Some("--index-records")),
    ("label", None),
    ("max_open", None),
    ("mutable_size", None),
    ("on_corruption", None),
    ("pin", Some("--pin")),
    ("policy", Some("--policy")),
    ("record_limit", Some("--record-limit")),
    ("reserve", Some("--reserve")),
    ("retention", None),
    ("retention.age", Some("--retain-age")),
    ("retention.bytes", Some("--retain-bytes")),
    ("retention.records", None),
    ("retention.segments", Some("--retain-segments")),
    ("segment_records", Some("--segment-records")),
    ("segment_size", Some("--segment-size")),
    ("shared_reserve", None),
];

/// Returns the message for an option that must be what `rule` says: with the flag that sets it, in
/// place of the names of the library.
pub fn wrong(option: &str, rule: &str) -> String {
    let Some(flag) = flag(option) else { return format!("option {option} must be {rule}") };
    if option == "policy" {
        return format!("{flag} must be batch:N of at most 2^32, or periodic:MS of at most a day");
    }
    // The command rounds these down to whole blocks.
    let rule = rule.strip_prefix("a multiple of 4096 ").unwrap_or(rule);
    let rule = rule.replace("a segment_size of", "--segment-size");
    format!("{flag} must be {}", rule.replace(" KiB", "K").replace(" MiB", "M"))
}

/// Returns every flag that sets an option of the library.
pub fn all() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().filter_map(|(_, flag)| *flag)
}

/// Returns the flag that sets this option of the library.
pub fn flag(option: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(name, _)| *name == option).and_then(|(_, flag)| *flag)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Collects the option names in the sources below `path`: in a file that constructs
    /// `InvalidOption`, every literal of lower-case letters, `_` and `.`.
    fn collect(path: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, names);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            if !["InvalidOption::unless(", "Err(InvalidOption {", "Err(Error::InvalidOption {"]
                .iter()
                .any(|construction| code.contains(construction))
            {
                continue;
            }
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let literals = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
            let is_name = |text: &&str| {
                let letters = text.chars().all(|c| c.is_ascii_lowercase() || "_.".contains(c));
                !text.is_empty() && letters
            };
            names.extend(literals.filter(is_name).map(str::to_owned));
        }
    }

    #[test]
    fn a_message_names_the_flag_and_what_it_takes() {
        let rule = "a multiple of 4096 from 64 KiB to 512 MiB";
        assert_eq!(wrong("segment_size", rule), "--segment-size must be from 64K to 512M");
        assert_eq!(wrong("label", "short"), "option label must be short");
    }

    #[test]
    fn the_table_has_every_option_that_the_crates_can_name() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut names = BTreeSet::new();
        for name in ["log", "consensus"] {
            collect(&crates.join(name).join("src"), &mut names);
        }
        let known: BTreeSet<String> = FLAGS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names, known);
    }
}

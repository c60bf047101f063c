//! The baseline: a file with the accepted answer of each case, for a ratchet in CI.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::verdict::Verdict;

/// The most differences that an answer names.
const DIFFERENCES_MAX: usize = 20;

/// The accepted answers, by the names of their cases.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Baseline {
    cases: BTreeMap<String, AcceptedAnswer>,
}

/// The parts of an answer that do not change between two runs of one program: numbers are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedAnswer {
    verdict: AcceptedVerdict,
    losable: BTreeSet<String>,
    failing: Option<String>,
}

/// A verdict that a baseline may have: the others say that nothing was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AcceptedVerdict {
    Kept,
    Lost,
}

/// An answer against the baseline.
#[derive(Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    Better,
    /// Differences that the baseline does not have, a sentence each.
    Worse(Vec<String>),
    /// The baseline has no such case.
    Missing,
}

impl Baseline {
    /// Reads a baseline; a file that is not there has no case.
    pub fn load(path: &Path) -> Result<Self> {
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is no baseline", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", path.display())),
        }
    }

    /// Writes the baseline in place of the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let written = || -> Result<()> {
            let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let mut file = tempfile::Builder::new();
            let mut file = file.permissions(permissions(path)).tempfile_in(match folder {
                Some(folder) => folder,
                None => Path::new("."),
            })?;
            serde_json::to_writer_pretty(&mut file, self)?;
            writeln!(file)?;
            file.persist(path)?;
            Ok(())
        };
        written().with_context(|| format!("failed to write {}", path.display()))
    }

    pub fn insert(&mut self, case: &str, answer: AcceptedAnswer) {
        self.cases.insert(case.to_owned(), answer);
    }

    pub fn compare(&self, case: &str, answer: &AcceptedAnswer) -> Comparison {
        self.cases.get(case).map_or(Comparison::Missing, |accepted| accepted.compare(answer))
    }

    /// The cases of which no answer is in the files, which hold a JSON object on each line.
    pub fn vanished(&self, answers: &[impl AsRef<Path>]) -> Result<Vec<&str>> {
        let mut seen = BTreeSet::new();
        for path in answers {
            let path = path.as_ref();
            let file = File::open(path);
            let file = file.with_context(|| format!("failed to read {}", path.display()))?;
            for (index, line) in BufReader::new(file).lines().enumerate() {
                let place = || format!("{}, line {}", path.display(), index + 1);
                let answer: serde_json::Value =
                    serde_json::from_str(&line.with_context(place)?).with_context(place)?;
                let Some(case) = answer["baseline"]["case"].as_str() else {
                    bail!("{}: no answer of a run with --baseline and --json", place());
                };
                seen.insert(case.to_owned());
            }
        }
        Ok(self.cases.keys().map(String::as_str).filter(|case| !seen.contains(*case)).collect())
    }
}

impl AcceptedAnswer {
    /// The answer in its accepted form; `None` when it says that nothing was measured.
    pub fn new(answer: &Answer) -> Option<Self> {
        let verdict = match answer.verdict {
            Verdict::Kept => AcceptedVerdict::Kept,
            Verdict::Lost => AcceptedVerdict::Lost,
            Verdict::NotMeasured | Verdict::CheckBroken => return None,
        };
        let losable = answer.losable.iter().map(|line| without_numbers(line)).collect();
        let failing = answer.failing.as_ref().map(|failing| without_numbers(&failing.sentence));
        Some(Self { verdict, losable, failing })
    }

    fn compare(&self, now: &Self) -> Comparison {
        let mut differences = Vec::new();
        if self.verdict == AcceptedVerdict::Kept && now.verdict == AcceptedVerdict::Lost {
            differences.push("the verdict was kept".to_owned());
        }
        if let (Some(failing), true) = (&now.failing, now.failing != self.failing) {
            differences.push(format!("a new failing state: {failing}"));
        }
        let losable = now.losable.difference(&self.losable);
        differences.extend(losable.map(|line| format!("newly losable: {line}")));
        if !differences.is_empty() {
            differences.truncate(DIFFERENCES_MAX);
            return Comparison::Worse(differences);
        }
        if self == now { Comparison::Same } else { Comparison::Better }
    }
}

/// The text with each number as `#`: offsets, sizes and lines differ between runs.
fn without_numbers(text: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut in_number = false;
    for character in text.chars() {
        if !character.is_ascii_digit() {
            replaced.push(character);
        } else if !in_number {
            replaced.push('#');
        }
        in_number = character.is_ascii_digit();
    }
    replaced
}

/// The permissions of the file that is replaced: a temporary file is its owner's alone.
fn permissions(path: &Path) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    let existing = fs::metadata(path).map(|metadata| metadata.permissions());
    existing.unwrap_or_else(|_| fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn answer(verdict: AcceptedVerdict, losable: &[&str], failing: Option<&str>) -> AcceptedAnswer {
        AcceptedAnswer {
            verdict,
            losable: losable.iter().map(|line| without_numbers(line)).collect(),
            failing: failing.map(without_numbers),
        }
    }

    #[test]
    fn each_answer_is_the_same_better_or_worse() {
        use AcceptedVerdict::{Kept, Lost};
        let kept = answer(Kept, &[], None);
        let listed = answer(Lost, &["write(a, 4 bytes at 0)", "create(a)"], None);
        let failing = answer(Lost, &[], Some("after operation 3: lost `2 write(a, 4 bytes at 0)`"));
        let elsewhere =
            answer(Lost, &[], Some("after operation 9: lost `7 write(a, 8 bytes at 5)`"));
        let other = answer(Lost, &[], Some("after operation 3: lost `2 create(a)`"));
        let fewer = answer(Lost, &["create(a)"], None);
        let more = answer(Lost, &["create(a)", "create(b)"], None);
        let is_worse = |accepted: &AcceptedAnswer, now: &AcceptedAnswer| {
            matches!(accepted.compare(now), Comparison::Worse(_))
        };
        for same in [&kept, &listed, &failing] {
            assert_eq!(same.compare(same), Comparison::Same);
        }
        assert_eq!(failing.compare(&elsewhere), Comparison::Same);
        for lost in [&listed, &failing] {
            assert!(is_worse(&kept, lost));
            assert_eq!(lost.compare(&kept), Comparison::Better);
        }
        assert_eq!(listed.compare(&fewer), Comparison::Better);
        assert!(
            is_worse(&fewer, &listed) && is_worse(&listed, &more) && is_worse(&failing, &other)
        );
        assert_eq!(Baseline::default().compare("a", &kept), Comparison::Missing);
    }

    #[test]
    fn file_is_read_as_it_was_written_and_lists_vanished_cases() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.json");
        let mut baseline = Baseline::load(&path).unwrap();
        baseline.insert("a", answer(AcceptedVerdict::Kept, &[], None));
        baseline.insert("b \"x\"", answer(AcceptedVerdict::Lost, &["create(a)"], Some("text 7")));
        baseline.save(&path).unwrap();
        assert_eq!(Baseline::load(&path).unwrap(), baseline);
        let answers = folder.path().join("answers");
        fs::write(&answers, "{\"baseline\":{\"case\":\"b \\\"x\\\"\"}}\n").unwrap();
        assert_eq!(baseline.vanished(&[&answers]).unwrap(), ["a"]);
        fs::write(&answers, "{}\n").unwrap();
        assert!(baseline.vanished(&[&answers]).is_err());
        fs::write(&path, "{\"a\":{\"verdict\":\"not measured\"}}").unwrap();
        assert!(Baseline::load(&path).is_err());
    }
}

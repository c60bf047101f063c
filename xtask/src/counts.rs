//! The sum of the `test result:` lines that `cargo test` prints, one for each test binary.

use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Counts {
    /// Adds what `line` says, if it is a `test result:` line.
    pub fn add_line(&mut self, line: &str) {
        let Some((_, rest)) = line.split_once("test result: ") else { return };
        let rest = rest.split_once(". ").map_or(rest, |(_, counts)| counts);
        for part in rest.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(output: &str) -> Counts {
        let mut counts = Counts::default();
        output.lines().for_each(|line| counts.add_line(line));
        counts
    }

    #[test]
    fn sums_over_binaries() {
        let output = "\
running 3 tests
test a ... ok
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.00s

test result: FAILED. 1 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";
        assert_eq!(counts_of(output), Counts { passed: 3, failed: 5, skipped: 1 });
        assert_eq!(counts_of(output).to_string(), "3 passed, 5 failed, 1 skipped");
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(counts_of("test passed ... ok\n7 passed; 1 failed\n"), Counts::default());
    }
}

//! The numbers of a sequence that callers got.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::measure::figure::Verdict;
use esker_command::exit::{Failure, Outcome};
use esker_command::output::counted;

/// The most ranges with gaps between them. Without a gap there is one for each call in flight.
const RANGES_MAX: usize = 1 << 20;

/// Numbers, as ranges that are joined where they meet.
#[derive(Debug, Default)]
pub struct NumberSet {
    /// The last number of each range, by its first.
    ranges: BTreeMap<u64, u64>,
    violation: Option<String>,
    /// Calls that may have taken numbers which no caller got.
    unknown: u64,
}

impl NumberSet {
    /// Adds the numbers of a call.
    pub fn add(&mut self, numbers: &RangeInclusive<u64>) {
        let (mut first, mut last) = (*numbers.start(), *numbers.end());
        debug_assert!(first <= last, "a call has at least one number");
        if self.violation.is_some() {
            return;
        }
        if let Some((before, end)) = self.ranges.range(..=last).next_back()
            && *end >= first
        {
            let repeated = (*before).max(first);
            self.violation = Some(format!("two calls got the number {repeated}"));
            return;
        }
        if let Some(end) = last.checked_add(1).and_then(|after| self.ranges.remove(&after)) {
            last = end;
        }
        if let Some((&before, &end)) = self.ranges.range(..first).next_back()
            && end.checked_add(1) == Some(first)
        {
            first = before;
        }
        self.ranges.insert(first, last);
        if self.ranges.len() > RANGES_MAX {
            self.violation = Some(format!("there are more than {RANGES_MAX} gaps"));
        }
    }

    /// Counts a call of which it is unknown whether it took numbers.
    pub fn add_unknown(&mut self) {
        self.unknown += 1;
    }

    /// Checks that the numbers are consecutive: no gap, no repeat.
    pub fn check(&self) -> NumberCheck {
        let mut ranges = self.ranges.iter();
        let gap = ranges.next().zip(ranges.next()).map(|((_, end), (after, _))| {
            format!("no call got the numbers between {end} and {after}")
        });
        let (verdict, why) = match (&self.violation, gap) {
            (Some(violation), _) => (Verdict::Wrong, Some(violation.clone())),
            (None, Some(gap)) if self.unknown == 0 => (Verdict::Wrong, Some(gap)),
            (None, Some(_)) => (Verdict::Unchecked, None),
            (None, None) => (Verdict::right_if(!self.ranges.is_empty()), None),
        };
        NumberCheck { verdict, unknown: self.unknown, violation: why }
    }
}

/// The result of checking numbers.
#[derive(Debug)]
pub struct NumberCheck {
    pub verdict: Verdict,
    /// Calls of which it is unknown whether they took numbers.
    pub unknown: u64,
    violation: Option<String>,
}

impl NumberCheck {
    /// The line for people.
    pub fn text(&self) -> String {
        match (self.verdict, self.unknown) {
            (Verdict::Right, _) => "consecutive: no gap, no repeat\n".into(),
            (Verdict::Wrong, _) => "NOT consecutive\n".into(),
            (Verdict::Unchecked, 0) => "no number was taken\n".into(),
            (Verdict::Unchecked, unknown) => {
                let calls = counted(unknown, "call");
                format!("gaps were not checked: the outcome of {calls} is unknown\n")
            }
        }
    }

    /// Fails if there is a violation. To be called when the figure was printed.
    pub fn outcome(self) -> Outcome {
        self.violation.map_or(Ok(()), |violation| Err(Failure::failed(violation)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[RangeInclusive<u64>]) -> NumberSet {
        let mut set = NumberSet::default();
        ranges.iter().for_each(|range| set.add(range));
        set
    }

    #[test]
    fn consecutive_numbers_are_right_in_any_order() {
        let ranges = [41..=41, 42..=44, 45..=45, 46..=50];
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 3, 0, 2], [3, 0, 2, 1]];
        for order in orders {
            let set = set(&order.map(|at| ranges[at].clone()));
            assert_eq!(set.check().verdict, Verdict::Right, "{order:?}");
            assert_eq!(set.ranges.len(), 1, "{order:?}");
            assert!(set.check().outcome().is_ok());
        }
        let last = set(&[u64::MAX..=u64::MAX, u64::MAX - 1..=u64::MAX - 1]);
        assert_eq!(last.check().verdict, Verdict::Right);
        assert_eq!(set(&[]).check().verdict, Verdict::Unchecked);
    }

    #[test]
    fn a_gap_and_a_repeat_are_found() {
        for (ranges, named) in [
            (&[1..=3, 5..=5][..], "between 3 and 5"),
            (&[5..=5, 1..=3], "between 3 and 5"),
            (&[1..=1, 2..=2, 2..=2], "number 2"),
            (&[1..=9, 3..=4], "number 3"),
            (&[3..=4, 1..=9], "number 3"),
            (&[3..=4, 1..=3], "number 3"),
            (&[3..=4, 4..=6], "number 4"),
            (&[1..=1, 4..=4, 2..=5], "number 4"),
        ] {
            let checked = set(ranges).check();
            assert_eq!(checked.verdict, Verdict::Wrong, "{ranges:?}");
            assert!(checked.text().contains("NOT"));
            let violation = checked.outcome().map_err(|failure| failure.to_string());
            assert!(violation.is_err_and(|why| why.contains(named)), "{ranges:?} {named}");
        }
    }

    /// A gap may be the numbers of a call whose answer was lost. A repeat never is.
    #[test]
    fn a_gap_beside_an_unknown_outcome_is_not_checked() {
        let mut gap = set(&[1..=3, 5..=5]);
        gap.add_unknown();
        let checked = gap.check();
        assert_eq!((checked.verdict, checked.unknown), (Verdict::Unchecked, 1));
        assert!(checked.text().contains("1 call is unknown"), "{}", checked.text());
        assert!(checked.outcome().is_ok());
        gap.add(&(2..=2));
        assert_eq!(gap.check().verdict, Verdict::Wrong);
        let mut whole = set(&[1..=3]);
        whole.add_unknown();
        assert_eq!(whole.check().verdict, Verdict::Right);
    }
}

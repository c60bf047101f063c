//! A check that the answers that clients got are those of one oracle.

use std::fmt;

use crate::range::Range;
use crate::timestamp::Timestamp;

/// A call that was answered. Times are those of one clock, of any unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The time before it was sent.
    pub called: u64,
    /// The time after it was answered.
    pub returned: u64,
    /// The answer.
    pub range: Range,
}

/// A violation of the order or the uniqueness of timestamps: no history of one oracle has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Two calls got the same timestamp.
    Duplicate(Call, Call),
    /// The first call had returned before the second began, and has a higher timestamp.
    Reordered(Call, Call),
    /// An answer without timestamps, or with an index 0, or with indexes beyond the last one.
    Malformed(Call),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(one, other) => {
                write!(f, "a timestamp was issued twice: {one:?} {other:?}")
            }
            Self::Reordered(before, after) => {
                write!(f, "a later call got a lower timestamp: {before:?} {after:?}")
            }
            Self::Malformed(call) => write!(f, "this is no range of timestamps: {call:?}"),
        }
    }
}

/// The last timestamp of a range that an oracle may answer.
fn last(range: &Range) -> Option<Timestamp> {
    range.last().filter(|_| range.first.index > 0)
}

/// The calls with their timestamps as those of 64 bits have them: with the millisecond of the epoch
/// alone. A history has one order in both forms.
pub fn in_milliseconds(calls: &[Call]) -> Vec<Call> {
    let in_milliseconds = |call: &Call| {
        let range = Range { first: call.range.first.in_milliseconds(), ..call.range };
        Call { range, ..*call }
    };
    calls.iter().map(in_milliseconds).collect()
}

/// Checks that all timestamps are different, and that a call that returned before another began has
/// the lower ones. Sorts the calls twice.
///
/// # Errors
/// The first violation that was found.
pub fn check(calls: &[Call]) -> Result<(), Violation> {
    let mut ranges = Vec::with_capacity(calls.len());
    for call in calls {
        ranges.push((call, last(&call.range).ok_or(Violation::Malformed(*call))?));
    }
    ranges.sort_unstable_by_key(|(call, _)| call.range.first);
    for pair in ranges.windows(2) {
        if let [(one, last), (other, _)] = pair
            && other.range.first <= *last
        {
            return Err(Violation::Duplicate(**one, **other));
        }
    }
    let mut began = ranges.clone();
    began.sort_unstable_by_key(|(call, _)| call.called);
    ranges.sort_unstable_by_key(|(call, _)| call.returned);
    let mut returned = ranges.into_iter().peekable();
    let mut highest: Option<(&Call, Timestamp)> = None;
    for (call, _) in began {
        while let Some(before) = returned.next_if(|(before, _)| before.returned < call.called) {
            highest = highest.filter(|(_, last)| *last > before.1).or(Some(before));
        }
        if let Some((before, last)) = highest
            && call.range.first < last
        {
            return Err(Violation::Reordered(*before, *call));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(called: u64, returned: u64, epoch: u64, index: u64, count: u32) -> Call {
        Call { called, returned, range: Range { first: Timestamp { epoch, index }, count } }
    }

    #[test]
    fn what_one_oracle_may_answer_passes() {
        // Calls at the same time may get theirs in any order.
        let calls = [
            call(0, 9, 5, 4, 2),
            call(0, 9, 5, 1, 3),
            call(9, 12, 5, 6, 1),
            call(10, 12, 6, 1, 65_536),
            call(11, 40, 6, 65_537, 1),
            call(13, 14, 7, 1, 1),
        ];
        assert_eq!(check(&calls), Ok(()));
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn what_no_oracle_answers_is_found() {
        let (one, other) = (call(0, 9, 5, 1, 4), call(0, 9, 5, 4, 1));
        assert_eq!(check(&[other, one]), Err(Violation::Duplicate(one, other)));
        let (before, after) = (call(0, 8, 6, 1, 1), call(10, 11, 5, 1, 1));
        assert_eq!(check(&[after, before]), Err(Violation::Reordered(before, after)));
        // The highest of those before counts, not the last.
        let lower = call(1, 9, 4, 1, 1);
        assert_eq!(check(&[after, lower, before]), Err(Violation::Reordered(before, after)));
        for wrong in [call(0, 1, 5, 1, 0), call(0, 1, 5, 0, 1), call(0, 1, 5, u64::MAX, 2)] {
            assert_eq!(check(&[wrong]), Err(Violation::Malformed(wrong)));
        }
    }
}

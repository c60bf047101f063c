//! The rules by which epochs follow wall clocks.

use std::ops::Range;
use std::time::Duration;

/// The clocks that are believed, in nanoseconds of Unix time: those from 2020 to 2200. The first
/// epoch of a cluster is of one of them, and no step of a clock leads beyond their end.
///
/// An epoch cannot be taken back, and the first one has none before it to be compared with. A clock
/// before 2020, when there was no Esker, was never set: machines without a battery begin at 1970.
/// One that were believed at the end of the range would leave 354 years, until epochs end in 2554.
pub const CREDIBLE_CLOCKS: Range<u64> =
    1_577_836_800 * NANOS_PER_SECOND..7_258_118_400 * NANOS_PER_SECOND;

/// The most by which a clock may be above the last epoch for a process that has no [`Reference`].
pub const CLOCK_LEAP_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

const NANOS_PER_SECOND: u64 = 1_000_000_000;

const _: () = assert!(CREDIBLE_CLOCKS.start < CREDIBLE_CLOCKS.end);

/// The last epoch of a process that applied it when it was new. A process that read the epoch from
/// its disk has no reference: it does not know the epoch's age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// The last epoch of this process.
    pub epoch: u64,
    /// The time since it was applied here, on a monotonic clock.
    pub age: Duration,
}

/// The step of the wall clock since the last epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The clock was followed.
    None,
    /// The clock is not above the last epoch, by this much: it was set back, or the epoch followed
    /// a clock that was ahead.
    Backward(Duration),
    /// The clock is ahead of what time and the largest step allow, by this much.
    Forward(Duration),
}

/// An epoch to propose, and the step of the clock that it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochProposal {
    /// The wall clock for the command. The epoch is in the millisecond after the last one if this
    /// is not above it.
    pub wall: u64,
    /// The step of the clock.
    pub step: Step,
}

/// Follows a wall clock, after the last epoch of the cluster.
///
/// - A clock that goes back is not followed: epochs continue from the last one.
/// - A clock that goes forward is followed up to the time that has passed since the reference, and
///   `largest_step` beyond it. One that goes further is followed at twice real time, until epochs
///   have caught up with it, or it was set right.
/// - No step leads beyond the end of [`CREDIBLE_CLOCKS`].
///
/// [`agree`] is for a process without a reference.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use esker_oracle::{Reference, Step, follow};
///
/// let reference = Reference { epoch: 1_000_000_000, age: Duration::from_nanos(500) };
/// let an_hour_ahead = 3_601_000_000_000;
/// let followed = follow(an_hour_ahead, 1_000_000_000, reference, Duration::from_secs(10));
/// assert_eq!(followed.wall, 1_000_001_000);
/// assert!(matches!(followed.step, Step::Forward(_)));
/// ```
pub fn follow(wall: u64, last: u64, reference: Reference, largest_step: Duration) -> EpochProposal {
    let Reference { epoch, age } = reference;
    let (age, largest_step) = (nanos(age), nanos(largest_step));
    let highest = CREDIBLE_CLOCKS.end.max(epoch.saturating_add(age));
    let believed = epoch.saturating_add(age).saturating_add(largest_step).min(highest);
    if wall > believed {
        let step = Step::Forward(Duration::from_nanos(wall - believed));
        return EpochProposal { wall: epoch.saturating_add(age.saturating_mul(2)).min(wall), step };
    }
    debug_assert!(wall <= highest, "no step leads beyond the credible clocks");
    EpochProposal { wall, step: backward_step(wall, last) }
}

/// The step of a clock that is believed: backward if it is not above the last epoch.
fn backward_step(wall: u64, last: u64) -> Step {
    match last.checked_sub(wall) {
        None => Step::None,
        Some(by) => Step::Backward(Duration::from_nanos(by)),
    }
}

/// Agrees on the first epoch of a process, which has no reference: the median of the clocks of this
/// node and the other voters, the lower one of an even number. An epoch cannot be taken back.
///
/// Clocks that cannot be believed do not count. Before the first epoch of the cluster, when `last`
/// is 0, these are the clocks outside of [`CREDIBLE_CLOCKS`]; after it, the clocks that are more
/// than [`CLOCK_LEAP_MAX`] above the last epoch, or beyond the end of that range.
///
/// The step is that of this node's clock from there, if it is larger than `largest_step`. From then
/// on epochs follow this node's clock as [`follow`] says.
///
/// `None` if no clock can be believed, and there is no epoch to continue from.
pub fn agree(own: u64, others: &[u64], last: u64, largest_step: Duration) -> Option<EpochProposal> {
    let is_believed = |clock: &u64| match last {
        0 => CREDIBLE_CLOCKS.contains(clock),
        _ => {
            *clock <= last.saturating_add(nanos(CLOCK_LEAP_MAX)).min(CREDIBLE_CLOCKS.end.max(last))
        }
    };
    let mut clocks = [&[own], others].concat();
    clocks.retain(is_believed);
    clocks.sort_unstable();
    let middle = clocks.get(clocks.len().saturating_sub(1) / 2).copied();
    let wall = middle.or((last > 0).then_some(last))?;
    debug_assert!(wall <= CREDIBLE_CLOCKS.end.max(last), "a clock is believed within its bounds");
    let from = wall.max(last);
    let apart = Duration::from_nanos(own.abs_diff(from));
    let step = match apart > largest_step {
        true if own > from => Step::Forward(apart - largest_step),
        true => Step::Backward(apart),
        false => backward_step(own, last),
    };
    Some(EpochProposal { wall, step })
}

/// Follows the clock however far ahead of the last epoch it is, for an operator who knows that it
/// is right. A clock that is behind is not followed. `None` for a clock beyond the end of
/// [`CREDIBLE_CLOCKS`]: no epoch could be taken back from there.
pub fn follow_at_once(wall: u64, last: u64) -> Option<EpochProposal> {
    (wall <= CREDIBLE_CLOCKS.end.max(last))
        .then(|| EpochProposal { wall, step: backward_step(wall, last) })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TEST_NOW: u64 = 1_700_000_000 * NANOS_PER_SECOND;
    const LARGEST_STEP: Duration = Duration::from_secs(10);

    fn after(wall: u64, age: Duration) -> EpochProposal {
        follow(wall, TEST_NOW, Reference { epoch: TEST_NOW, age }, LARGEST_STEP)
    }

    #[test]
    fn a_clock_is_followed_within_the_largest_step() {
        let second = Duration::from_secs(1);
        for ahead in [1, NANOS_PER_SECOND, 11 * NANOS_PER_SECOND] {
            let followed = after(TEST_NOW + ahead, second);
            assert_eq!(followed, EpochProposal { wall: TEST_NOW + ahead, step: Step::None });
        }
        let followed = after(TEST_NOW + 11 * NANOS_PER_SECOND + 1, second);
        let step = Step::Forward(Duration::from_nanos(1));
        assert_eq!(followed, EpochProposal { wall: TEST_NOW + 2 * NANOS_PER_SECOND, step });
        // A day without requests is no step.
        let day = Duration::from_secs(86_400);
        assert_eq!(after(TEST_NOW + 86_400 * NANOS_PER_SECOND, day).step, Step::None);
    }

    #[test]
    fn a_clock_that_goes_back_is_not_followed() {
        for back in [0, 1, 3600 * NANOS_PER_SECOND, TEST_NOW] {
            let followed = after(TEST_NOW - back, Duration::from_secs(1));
            assert_eq!(followed.step, Step::Backward(Duration::from_nanos(back)));
            assert!(followed.wall <= TEST_NOW);
        }
    }

    /// An hour ahead, an epoch every 100 ms: twice real time, until it is caught up with.
    #[test]
    fn a_large_step_forward_is_followed_at_twice_real_time() {
        let (mut epoch, mut clock) = (TEST_NOW, TEST_NOW + 3600 * NANOS_PER_SECOND);
        let tick = Duration::from_millis(100);
        let mut ticks = 0_u64;
        loop {
            clock += NANOS_PER_SECOND / 10;
            let reference = Reference { epoch, age: tick };
            let followed = follow(clock, epoch, reference, LARGEST_STEP);
            ticks += 1;
            if followed.step == Step::None {
                break;
            }
            assert_eq!(followed.wall, epoch + NANOS_PER_SECOND / 5);
            epoch = followed.wall;
        }
        // All but the largest step, at one tick of gain for each.
        assert_eq!(ticks, 3590 * 10 + 1);
    }

    #[test]
    fn no_clock_overflows() {
        let ages = [Duration::ZERO, Duration::from_secs(1), Duration::MAX];
        for epoch in [0, 1, TEST_NOW, u64::MAX] {
            for wall in [0, 1, TEST_NOW, u64::MAX] {
                for age in ages {
                    for largest in ages {
                        let followed = follow(wall, epoch, Reference { epoch, age }, largest);
                        assert!(followed.wall <= wall.max(epoch), "{followed:?}");
                        let agreed = agree(wall, &[epoch, wall], epoch, largest);
                        assert!(agreed.is_none_or(|agreed| agreed.wall <= wall.max(epoch)));
                    }
                }
            }
        }
    }

    #[test]
    fn most_clocks_decide_where_epochs_begin() {
        let hour = 3600 * NANOS_PER_SECOND;
        let agreed = |own: u64, others: &[u64]| {
            let EpochProposal { wall, step } = agree(own, others, 0, LARGEST_STEP).unwrap();
            (wall, step)
        };
        let (early, late) = (TEST_NOW - hour, TEST_NOW + hour);
        let forward = Step::Forward(Duration::from_secs(3600) - LARGEST_STEP);
        let backward = Step::Backward(Duration::from_secs(3600));
        assert_eq!(agreed(late, &[]), (late, Step::None));
        assert_eq!(agreed(late, &[TEST_NOW]), (TEST_NOW, forward));
        assert_eq!(agreed(TEST_NOW, &[late]), (TEST_NOW, Step::None));
        assert_eq!(agreed(early, &[TEST_NOW, TEST_NOW + 1]), (TEST_NOW, backward));
        assert_eq!(
            agreed(late, &[TEST_NOW, TEST_NOW + 1]),
            (TEST_NOW + 1, Step::Forward(Duration::from_nanos(hour - 1) - LARGEST_STEP))
        );
        assert_eq!(agreed(TEST_NOW, &[early, late]), (TEST_NOW, Step::None));
        assert_eq!(agreed(TEST_NOW, &[early, early, late, late]), (TEST_NOW, Step::None));
        assert_eq!(
            agreed(TEST_NOW + NANOS_PER_SECOND, &[TEST_NOW, TEST_NOW]),
            (TEST_NOW, Step::None)
        );
    }

    #[test]
    fn a_clock_that_is_followed_at_once_is_not_followed_back() {
        let back = |by| Step::Backward(Duration::from_nanos(by));
        let hundred_years = TEST_NOW + 3_000_000_000 * NANOS_PER_SECOND;
        for (wall, step) in [
            (TEST_NOW + 1, Step::None),
            (hundred_years, Step::None),
            (TEST_NOW, back(0)),
            (TEST_NOW - 7, back(7)),
        ] {
            assert_eq!(follow_at_once(wall, TEST_NOW), Some(EpochProposal { wall, step }));
        }
        assert_eq!(follow_at_once(u64::MAX, TEST_NOW), None);
    }

    /// An idle leader whose clock stepped a little too far got an epoch as far in the future as it
    /// had been idle.
    #[test]
    fn no_epoch_is_above_a_clock_that_is_ahead() {
        let month = 30 * 24 * 3600 * NANOS_PER_SECOND;
        let clock = TEST_NOW + month + 11 * NANOS_PER_SECOND;
        let followed = after(clock, Duration::from_nanos(month));
        let step = Step::Forward(Duration::from_secs(1));
        assert_eq!(followed, EpochProposal { wall: clock, step });
    }

    /// A clock after 2554 made the last epoch that there is.
    #[test]
    fn a_first_epoch_is_of_a_clock_from_2020_to_2200() {
        let Range { start, end } = CREDIBLE_CLOCKS;
        let agreed = |own: u64, others: &[u64]| {
            agree(own, others, 0, LARGEST_STEP).map(|EpochProposal { wall, .. }| wall)
        };
        for clock in [0, 1, start - 1, end, u64::MAX] {
            assert_eq!(agreed(clock, &[]), None);
            assert_eq!(agreed(clock, &[0, u64::MAX]), None);
            assert_eq!(agreed(clock, &[u64::MAX, TEST_NOW]), Some(TEST_NOW));
        }
        assert_eq!(agreed(start, &[]), Some(start));
        assert_eq!(agreed(end - 1, &[]), Some(end - 1));
    }

    #[test]
    fn a_clock_is_believed_up_to_a_year_above_the_last_epoch() {
        let year = nanos(CLOCK_LEAP_MAX);
        let largest = nanos(LARGEST_STEP);
        let agreed = |own: u64, others: &[u64]| agree(own, others, TEST_NOW, LARGEST_STEP).unwrap();
        let followed = |wall, step| EpochProposal { wall, step };
        let forward = |by| Step::Forward(Duration::from_nanos(by));
        let backward = |by| Step::Backward(Duration::from_nanos(by));
        assert_eq!(agreed(TEST_NOW + year, &[]), followed(TEST_NOW + year, Step::None));
        // Epochs continue from the last one.
        for clock in [TEST_NOW + year + 1, CREDIBLE_CLOCKS.end, u64::MAX] {
            assert_eq!(agreed(clock, &[]), followed(TEST_NOW, forward(clock - TEST_NOW - largest)));
            assert_eq!(agreed(TEST_NOW + 7, &[clock, clock]), followed(TEST_NOW + 7, Step::None));
        }
        let ahead = agreed(u64::MAX, &[TEST_NOW + 7, TEST_NOW + 9]);
        assert_eq!(ahead, followed(TEST_NOW + 7, forward(u64::MAX - TEST_NOW - 7 - largest)));
        assert_eq!(agreed(0, &[]), followed(0, backward(TEST_NOW)));
        // Epochs that were driven there by an earlier version rise on, and no clock brings them
        // further.
        let high = CREDIBLE_CLOCKS.end + year;
        for clock in [TEST_NOW, high + 1, u64::MAX] {
            let followed = agree(clock, &[], high, LARGEST_STEP).unwrap();
            assert!(followed.wall <= high, "{followed:?}");
        }
    }

    /// The step of a clock that is behind was 0 until the second epoch after a restart.
    #[test]
    fn a_clock_that_is_behind_is_noticed_at_the_first_epoch() {
        let behind = |by| Step::Backward(Duration::from_nanos(by));
        let step = |own| agree(own, &[], TEST_NOW, LARGEST_STEP).map(|followed| followed.step);
        assert_eq!(step(TEST_NOW), Some(behind(0)));
        assert_eq!(step(TEST_NOW - 5), Some(behind(5)));
        assert_eq!(step(TEST_NOW - 3600 * NANOS_PER_SECOND), Some(behind(3600 * NANOS_PER_SECOND)));
        assert_eq!(step(TEST_NOW + 1), Some(Step::None));
        // Another node led meanwhile.
        let reference =
            Reference { epoch: TEST_NOW - NANOS_PER_SECOND, age: Duration::from_secs(1) };
        assert_eq!(follow(TEST_NOW - 5, TEST_NOW, reference, LARGEST_STEP).step, behind(5));
    }

    /// The bound holds for any largest step.
    #[test]
    fn no_step_leads_beyond_2200() {
        let reference = Reference { epoch: TEST_NOW, age: Duration::from_secs(1) };
        let largest = Duration::MAX;
        let before = CREDIBLE_CLOCKS.end - 1;
        assert_eq!(follow(before, TEST_NOW, reference, largest).step, Step::None);
        let followed = follow(u64::MAX, TEST_NOW, reference, largest);
        assert_eq!(followed.wall, TEST_NOW + 2 * NANOS_PER_SECOND);
        assert!(matches!(followed.step, Step::Forward(_)), "{followed:?}");
    }
}

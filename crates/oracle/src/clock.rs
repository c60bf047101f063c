//! How far the wall clock of a leader is believed.

use std::ops::Range;
use std::time::Duration;

/// The clocks that a cluster's first epoch is taken from, in nanoseconds of Unix time: those from
/// 2020 to 2200.
///
/// An epoch cannot be taken back, and the first one has none before it to be compared with. A clock
/// before 2020, when there was no Esker, was never set: machines without a battery begin at 1970.
/// One that were believed at the end of the range would leave 354 years, until epochs end in 2554.
pub const FIRST_EPOCHS: Range<u64> = 1_577_836_800 * SECOND..7_258_118_400 * SECOND;

/// How far above the last epoch a clock is believed by a process that has no [`Reference`].
pub const LEAP_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

const SECOND: u64 = 1_000_000_000;

/// The last epoch of a process, as it knows it that applied it when it was new. A process that read
/// it from its disk has no reference: it does not know how long ago that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// The last epoch of this process.
    pub epoch: u64,
    /// How long ago it was applied here, on a monotonic clock.
    pub age: Duration,
}

/// What the wall clock did since the last epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing worth a word.
    None,
    /// It is not above the last epoch, by so much: it was set back, or follows one that was ahead.
    Backward(Duration),
    /// It is ahead of what time and the largest step allow, by so much.
    Forward(Duration),
}

/// The epoch to propose, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followed {
    /// What goes into the command. The epoch is one above the last if this is not.
    pub wall: u64,
    /// What the clock did.
    pub step: Step,
}

/// How the epochs follow a wall clock, after the last epoch of the cluster.
///
/// - A clock that goes back is not followed: epochs continue from the last one.
/// - A clock that goes forward is followed up to the time that has passed since the reference, and
///   `largest_step` beyond it. One that goes further is followed at twice real time, until epochs
///   have caught up with it, or it was set right.
/// - No step leads beyond the end of [`FIRST_EPOCHS`].
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
pub fn follow(wall: u64, last: u64, reference: Reference, largest_step: Duration) -> Followed {
    let Reference { epoch, age } = reference;
    let (age, largest_step) = (nanos(age), nanos(largest_step));
    let highest = FIRST_EPOCHS.end.max(epoch.saturating_add(age));
    let believed = epoch.saturating_add(age).saturating_add(largest_step).min(highest);
    if wall > believed {
        let step = Step::Forward(Duration::from_nanos(wall - believed));
        return Followed { wall: epoch.saturating_add(age.saturating_mul(2)).min(wall), step };
    }
    Followed { wall, step: behind(wall, last) }
}

/// A clock that is not above the last epoch.
fn behind(wall: u64, last: u64) -> Step {
    match last.checked_sub(wall) {
        None => Step::None,
        Some(by) => Step::Backward(Duration::from_nanos(by)),
    }
}

/// The first epoch of a process, which has no reference: the clock in the middle of this node's and
/// the other voters', of an even number the lower of two. An epoch cannot be taken back.
///
/// Clocks that cannot be believed do not count. Before the first epoch of the cluster, when `last`
/// is 0, these are the ones that are not in [`FIRST_EPOCHS`]; after it, those that are more than
/// [`LEAP_MAX`] above the last epoch, or beyond the end of that range.
///
/// The step is that of this node's clock from there, if it is larger than `largest_step`. From then
/// on epochs follow this node's clock as [`follow`] says.
///
/// `None` if no clock can be believed, and there is no epoch to continue from.
pub fn agree(own: u64, others: &[u64], last: u64, largest_step: Duration) -> Option<Followed> {
    let is_believed = |clock: &u64| match last {
        0 => FIRST_EPOCHS.contains(clock),
        _ => *clock <= last.saturating_add(nanos(LEAP_MAX)).min(FIRST_EPOCHS.end.max(last)),
    };
    let mut clocks = [&[own], others].concat();
    clocks.retain(is_believed);
    clocks.sort_unstable();
    let middle = clocks.get(clocks.len().saturating_sub(1) / 2).copied();
    let wall = middle.or((last > 0).then_some(last))?;
    let from = wall.max(last);
    let apart = Duration::from_nanos(own.abs_diff(from));
    let step = match apart > largest_step {
        true if own > from => Step::Forward(apart - largest_step),
        true => Step::Backward(apart),
        false => behind(own, last),
    };
    Some(Followed { wall, step })
}

/// The clock, however far ahead of the last epoch it is, for an operator who knows that it is
/// right. One that is behind is not followed. `None` for one beyond the end of [`FIRST_EPOCHS`]: no
/// epoch could be taken back from there.
pub fn at_once(wall: u64, last: u64) -> Option<Followed> {
    (wall <= FIRST_EPOCHS.end.max(last)).then(|| Followed { wall, step: behind(wall, last) })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const NOW: u64 = 1_700_000_000 * SECOND;
    const LARGEST: Duration = Duration::from_secs(10);

    fn after(wall: u64, age: Duration) -> Followed {
        follow(wall, NOW, Reference { epoch: NOW, age }, LARGEST)
    }

    #[test]
    fn a_clock_is_followed_within_the_largest_step() {
        let second = Duration::from_secs(1);
        for ahead in [1, SECOND, 11 * SECOND] {
            let followed = after(NOW + ahead, second);
            assert_eq!(followed, Followed { wall: NOW + ahead, step: Step::None });
        }
        let followed = after(NOW + 11 * SECOND + 1, second);
        let step = Step::Forward(Duration::from_nanos(1));
        assert_eq!(followed, Followed { wall: NOW + 2 * SECOND, step });
        // A day without requests is no step.
        let day = Duration::from_secs(86_400);
        assert_eq!(after(NOW + 86_400 * SECOND, day).step, Step::None);
    }

    #[test]
    fn a_clock_that_goes_back_is_not_followed() {
        for back in [0, 1, 3600 * SECOND, NOW] {
            let followed = after(NOW - back, Duration::from_secs(1));
            assert_eq!(followed.step, Step::Backward(Duration::from_nanos(back)));
            assert!(followed.wall <= NOW);
        }
    }

    /// An hour ahead, an epoch every 100 ms: twice real time, until it is caught up with.
    #[test]
    fn a_large_step_forward_is_followed_at_twice_real_time() {
        let (mut epoch, mut clock) = (NOW, NOW + 3600 * SECOND);
        let tick = Duration::from_millis(100);
        let mut ticks = 0_u64;
        loop {
            clock += SECOND / 10;
            let reference = Reference { epoch, age: tick };
            let followed = follow(clock, epoch, reference, LARGEST);
            ticks += 1;
            if followed.step == Step::None {
                break;
            }
            assert_eq!(followed.wall, epoch + SECOND / 5);
            epoch = followed.wall;
        }
        // All but the largest step, at one tick of gain for each.
        assert_eq!(ticks, 3590 * 10 + 1);
    }

    #[test]
    fn no_clock_overflows() {
        let ages = [Duration::ZERO, Duration::from_secs(1), Duration::MAX];
        for epoch in [0, 1, NOW, u64::MAX] {
            for wall in [0, 1, NOW, u64::MAX] {
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
        let hour = 3600 * SECOND;
        let agreed = |own: u64, others: &[u64]| {
            let Followed { wall, step } = agree(own, others, 0, LARGEST).unwrap();
            (wall, step)
        };
        let (early, late) = (NOW - hour, NOW + hour);
        let forward = Step::Forward(Duration::from_secs(3600) - LARGEST);
        let backward = Step::Backward(Duration::from_secs(3600));
        assert_eq!(agreed(late, &[]), (late, Step::None));
        assert_eq!(agreed(late, &[NOW]), (NOW, forward));
        assert_eq!(agreed(NOW, &[late]), (NOW, Step::None));
        assert_eq!(agreed(early, &[NOW, NOW + 1]), (NOW, backward));
        assert_eq!(
            agreed(late, &[NOW, NOW + 1]),
            (NOW + 1, Step::Forward(Duration::from_nanos(hour - 1) - LARGEST))
        );
        assert_eq!(agreed(NOW, &[early, late]), (NOW, Step::None));
        assert_eq!(agreed(NOW, &[early, early, late, late]), (NOW, Step::None));
        assert_eq!(agreed(NOW + SECOND, &[NOW, NOW]), (NOW, Step::None));
    }

    #[test]
    fn a_clock_that_is_followed_at_once_is_not_followed_back() {
        let back = |by| Step::Backward(Duration::from_nanos(by));
        let hundred_years = NOW + 3_000_000_000 * SECOND;
        for (wall, step) in
            [(NOW + 1, Step::None), (hundred_years, Step::None), (NOW, back(0)), (NOW - 7, back(7))]
        {
            assert_eq!(at_once(wall, NOW), Some(Followed { wall, step }));
        }
        assert_eq!(at_once(u64::MAX, NOW), None);
    }

    /// An idle leader whose clock stepped a little too far got an epoch as far in the future as it
    /// had been idle.
    #[test]
    fn no_epoch_is_above_a_clock_that_is_ahead() {
        let month = 30 * 24 * 3600 * SECOND;
        let clock = NOW + month + 11 * SECOND;
        let followed = after(clock, Duration::from_nanos(month));
        let step = Step::Forward(Duration::from_secs(1));
        assert_eq!(followed, Followed { wall: clock, step });
    }

    /// A clock after 2554 made the last epoch that there is.
    #[test]
    fn a_first_epoch_is_of_a_clock_from_2020_to_2200() {
        let Range { start, end } = FIRST_EPOCHS;
        let agreed = |own: u64, others: &[u64]| {
            agree(own, others, 0, LARGEST).map(|Followed { wall, .. }| wall)
        };
        for clock in [0, 1, start - 1, end, u64::MAX] {
            assert_eq!(agreed(clock, &[]), None);
            assert_eq!(agreed(clock, &[0, u64::MAX]), None);
            assert_eq!(agreed(clock, &[u64::MAX, NOW]), Some(NOW));
        }
        assert_eq!(agreed(start, &[]), Some(start));
        assert_eq!(agreed(end - 1, &[]), Some(end - 1));
    }

    #[test]
    fn a_clock_is_believed_up_to_a_year_above_the_last_epoch() {
        let year = nanos(LEAP_MAX);
        let largest = nanos(LARGEST);
        let agreed = |own: u64, others: &[u64]| agree(own, others, NOW, LARGEST).unwrap();
        let followed = |wall, step| Followed { wall, step };
        let forward = |by| Step::Forward(Duration::from_nanos(by));
        let backward = |by| Step::Backward(Duration::from_nanos(by));
        assert_eq!(agreed(NOW + year, &[]), followed(NOW + year, Step::None));
        // Epochs continue from the last one.
        for clock in [NOW + year + 1, FIRST_EPOCHS.end, u64::MAX] {
            assert_eq!(agreed(clock, &[]), followed(NOW, forward(clock - NOW - largest)));
            assert_eq!(agreed(NOW + 7, &[clock, clock]), followed(NOW + 7, Step::None));
        }
        let ahead = agreed(u64::MAX, &[NOW + 7, NOW + 9]);
        assert_eq!(ahead, followed(NOW + 7, forward(u64::MAX - NOW - 7 - largest)));
        assert_eq!(agreed(0, &[]), followed(0, backward(NOW)));
        // Epochs that were driven there by an earlier version rise on, and no clock brings them
        // further.
        let high = FIRST_EPOCHS.end + year;
        for clock in [NOW, high + 1, u64::MAX] {
            let followed = agree(clock, &[], high, LARGEST).unwrap();
            assert!(followed.wall <= high, "{followed:?}");
        }
    }

    /// The step of a clock that is behind was 0 until the second epoch after a restart.
    #[test]
    fn a_clock_that_is_behind_is_noticed_at_the_first_epoch() {
        let behind = |by| Step::Backward(Duration::from_nanos(by));
        let step = |own| agree(own, &[], NOW, LARGEST).map(|followed| followed.step);
        assert_eq!(step(NOW), Some(behind(0)));
        assert_eq!(step(NOW - 5), Some(behind(5)));
        assert_eq!(step(NOW - 3600 * SECOND), Some(behind(3600 * SECOND)));
        assert_eq!(step(NOW + 1), Some(Step::None));
        // Another node led meanwhile.
        let reference = Reference { epoch: NOW - SECOND, age: Duration::from_secs(1) };
        assert_eq!(follow(NOW - 5, NOW, reference, LARGEST).step, behind(5));
    }

    /// However large a step may be.
    #[test]
    fn no_step_leads_beyond_2200() {
        let reference = Reference { epoch: NOW, age: Duration::from_secs(1) };
        let largest = Duration::MAX;
        let before = FIRST_EPOCHS.end - 1;
        assert_eq!(follow(before, NOW, reference, largest).step, Step::None);
        let followed = follow(u64::MAX, NOW, reference, largest);
        assert_eq!(followed.wall, NOW + 2 * SECOND);
        assert!(matches!(followed.step, Step::Forward(_)), "{followed:?}");
    }
}

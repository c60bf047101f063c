//! How far the wall clock of a leader is believed.

use std::time::Duration;

/// The last epoch, as a process that applied it when it was new knows it. A process that read it
/// from its disk has no reference: it does not know how long ago that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// The last epoch.
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

/// How the epochs follow a wall clock.
///
/// - A clock that goes back is not followed: epochs continue from the last one.
/// - A clock that goes forward is followed up to the time that has passed since the last epoch, and
///   `largest_step` beyond it. One that goes further is followed at twice real time, until epochs
///   have caught up with it, or it was set right.
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
/// let followed = follow(an_hour_ahead, reference, Duration::from_secs(10));
/// assert_eq!(followed.wall, 1_000_001_000);
/// assert!(matches!(followed.step, Step::Forward(_)));
/// ```
pub fn follow(wall: u64, reference: Reference, largest_step: Duration) -> Followed {
    let Reference { epoch, age } = reference;
    let (age, largest_step) = (nanos(age), nanos(largest_step));
    let believed = epoch.saturating_add(age).saturating_add(largest_step);
    if wall > believed {
        let step = Step::Forward(Duration::from_nanos(wall - believed));
        return Followed { wall: epoch.saturating_add(age.saturating_mul(2)), step };
    }
    match wall.checked_sub(epoch) {
        None | Some(0) => {
            let step = Step::Backward(Duration::from_nanos(epoch - wall));
            Followed { wall, step }
        }
        Some(_) => Followed { wall, step: Step::None },
    }
}

/// The first epoch of a process, which has no reference: the clock in the middle of this node's and
/// the other voters', of an even number the lower of two. An epoch cannot be taken back.
///
/// The step is that of this node's clock from there, if it is larger than `largest_step`. From then
/// on epochs follow this node's clock as [`follow`] says.
pub fn agree(own: u64, others: &[u64], largest_step: Duration) -> Followed {
    let mut clocks = [&[own], others].concat();
    clocks.sort_unstable();
    let wall = clocks.get((clocks.len() - 1) / 2).copied().unwrap_or(own);
    let apart = Duration::from_nanos(own.abs_diff(wall));
    let step = match apart > largest_step {
        false => Step::None,
        true if own > wall => Step::Forward(apart - largest_step),
        true => Step::Backward(apart),
    };
    Followed { wall, step }
}

/// The clock, however far ahead of the last epoch it is, for an operator who knows that it is
/// right. One that is behind is not followed.
pub fn at_once(wall: u64, last: u64) -> Followed {
    let step = match wall > last {
        true => Step::None,
        false => Step::Backward(Duration::from_nanos(last - wall)),
    };
    Followed { wall, step }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_700_000_000 * SECOND;
    const LARGEST: Duration = Duration::from_secs(10);

    fn after(wall: u64, age: Duration) -> Followed {
        follow(wall, Reference { epoch: NOW, age }, LARGEST)
    }

    /// Requirements: E-15.
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
            let followed = follow(clock, reference, LARGEST);
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
                        let followed = follow(wall, Reference { epoch, age }, largest);
                        assert!(followed.wall <= wall.max(epoch), "{followed:?}");
                    }
                }
            }
        }
    }

    /// Requirements: E-15.
    #[test]
    fn most_clocks_decide_where_epochs_begin() {
        let hour = 3600 * SECOND;
        let agreed = |own: u64, others: &[u64]| {
            let Followed { wall, step } = agree(own, others, LARGEST);
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
        assert_eq!(agreed(u64::MAX, &[0, u64::MAX]), (u64::MAX, Step::None));
    }

    #[test]
    fn a_clock_that_is_followed_at_once_is_not_followed_back() {
        let back = |by| Step::Backward(Duration::from_nanos(by));
        for (wall, step) in
            [(NOW + 1, Step::None), (u64::MAX, Step::None), (NOW, back(0)), (NOW - 7, back(7))]
        {
            assert_eq!(at_once(wall, NOW), Followed { wall, step });
        }
    }
}

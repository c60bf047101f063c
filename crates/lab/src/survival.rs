//! The writes that survived crashes, one by one and summed up.

use std::time::Duration;

use crate::promise::Promise;

/// The writes of a program that survived one crash, counted from the program's first one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survival {
    /// Writes accepted before the crash.
    pub accepted: u64,
    /// The writes of these that were reported as durable.
    pub durable: u64,
    /// Writes that recovery found.
    pub recovered: u64,
    /// Calls that were accepted and whose writes recovery did not find. An atomic batch is one
    /// call.
    pub lost_calls: u64,
    /// The age of the oldest lost write at the time of the crash.
    pub lost_age: Duration,
}

impl Survival {
    /// The calls lost that a promise covers: under [`Promise::NoLoss`] a call is answered when its
    /// write is durable, otherwise when it is accepted.
    pub fn lost(&self, promise: Promise) -> u64 {
        match promise {
            Promise::NoLoss => self.durable.saturating_sub(self.recovered),
            _ => self.lost_calls,
        }
    }

    /// Checks durable <= recovered <= accepted, and the loss against its promise.
    ///
    /// # Errors
    /// A sentence names the promise that was broken.
    pub fn check(&self, promise: Promise) -> Result<(), String> {
        let Survival { accepted, durable, recovered, .. } = *self;
        if recovered < durable || recovered > accepted {
            return Err(format!(
                "{accepted} writes were accepted, {durable} durable, and {recovered} recovered"
            ));
        }
        match promise {
            Promise::Calls(most) if self.lost_calls > most => {
                Err(format!("{} calls were lost, and at most {most} may be", self.lost_calls))
            }
            Promise::Age(most) if self.lost_age > most => {
                let age = self.lost_age;
                Err(format!("a write {age:?} old was lost, and none older than {most:?} may be"))
            }
            _ => Ok(()),
        }
    }
}

/// Many crashes under one setting, summed up. No crash is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Runs: programs that went through several crashes each.
    pub runs: u64,
    /// Power cuts or kills.
    pub cuts: u64,
    /// Crashes after which recovery succeeded without another crash in between.
    pub recoveries: u64,
    /// The sum of the writes that were durable, over all recoveries.
    pub durable: u64,
    /// The sum of the writes that recovery found.
    pub recovered: u64,
    /// The sum of the calls lost; see [`Survival::lost`].
    pub lost: u64,
    /// The fewest writes that a recovery found.
    pub min_recovered: u64,
    /// The most writes that a recovery found.
    pub max_recovered: u64,
    /// The most calls lost in one crash.
    pub max_lost: u64,
    /// The greatest age of a lost write at the time of a crash.
    pub max_lost_age: Duration,
}

impl Statistics {
    pub(crate) fn add(&mut self, survival: &Survival, promise: Promise) {
        let (recovered, lost) = (survival.recovered, survival.lost(promise));
        self.merge(&Statistics {
            recoveries: 1,
            durable: survival.durable,
            recovered,
            lost,
            min_recovered: recovered,
            max_recovered: recovered,
            max_lost: lost,
            max_lost_age: survival.lost_age,
            ..Statistics::default()
        });
    }

    pub(crate) fn merge(&mut self, other: &Statistics) {
        self.min_recovered = match (self.recoveries, other.recoveries) {
            (0, _) => other.min_recovered,
            (_, 0) => self.min_recovered,
            _ => self.min_recovered.min(other.min_recovered),
        };
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.recoveries += other.recoveries;
        self.durable += other.durable;
        self.recovered += other.recovered;
        self.lost += other.lost;
        self.max_recovered = self.max_recovered.max(other.max_recovered);
        self.max_lost = self.max_lost.max(other.max_lost);
        self.max_lost_age = self.max_lost_age.max(other.max_lost_age);
    }

    /// The average of a sum over all recoveries.
    pub fn average(&self, sum: u64) -> f64 {
        if self.recoveries == 0 { 0.0 } else { sum as f64 / self.recoveries as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Survival = Survival {
        accepted: 10,
        durable: 4,
        recovered: 5,
        lost_calls: 5,
        lost_age: Duration::from_millis(10),
    };

    #[test]
    fn what_was_durable_is_recovered() {
        assert_eq!(LOST.check(Promise::NoLoss), Ok(()));
        for (durable, recovered) in [(6, 5), (4, 11)] {
            let broken = Survival { durable, recovered, ..LOST };
            for promise in [Promise::NoLoss, Promise::Calls(99), Promise::Nothing] {
                assert!(broken.check(promise).is_err(), "{broken:?}");
            }
        }
    }

    #[test]
    fn a_loss_beyond_its_promise_is_refused() {
        assert_eq!(LOST.check(Promise::Calls(5)), Ok(()));
        assert!(LOST.check(Promise::Calls(4)).is_err());
        assert_eq!(LOST.check(Promise::Age(Duration::from_millis(10))), Ok(()));
        assert!(LOST.check(Promise::Age(Duration::from_millis(9))).is_err());
        assert_eq!(LOST.check(Promise::Nothing), Ok(()));
    }
}

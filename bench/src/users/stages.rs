//! The two scenarios, and how many users there are at a time.

use std::time::Duration;

use clap::ValueEnum;

/// A part of a scenario: the number of users goes to a share of all, in equal steps.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    pub name: &'static str,
    pub seconds: f64,
    /// The share of all users at the end of the stage.
    to: f64,
}

const fn stage(name: &'static str, seconds: f64, to: f64) -> Stage {
    Stage { name, seconds, to }
}

/// The scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// 100 users without think time: 2 minutes in 3 stages
    Few,
    /// 10,000 users that think for a second: 4 minutes in 7 stages
    Many,
}

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Self::Few => "few",
            Self::Many => "many",
        }
    }

    /// The users of the original scenario.
    pub fn users(self) -> u32 {
        match self {
            Self::Few => 100,
            Self::Many => 10_000,
        }
    }

    /// The mean time between an answer and the next request of a user.
    pub fn think(self) -> Duration {
        match self {
            Self::Few => Duration::ZERO,
            Self::Many => Duration::from_secs(1),
        }
    }

    fn stages(self) -> &'static [Stage] {
        const FEW: [Stage; 3] =
            [stage("ramp up", 30.0, 1.0), stage("hold", 60.0, 1.0), stage("ramp down", 30.0, 0.0)];
        const MANY: [Stage; 7] = [
            stage("ramp up to 10 %", 30.0, 0.1),
            stage("hold 10 %", 30.0, 0.1),
            stage("ramp up to 50 %", 40.0, 0.5),
            stage("hold 50 %", 30.0, 0.5),
            stage("ramp up to all", 40.0, 1.0),
            stage("hold", 40.0, 1.0),
            stage("ramp down", 30.0, 0.0),
        ];
        match self {
            Self::Few => &FEW,
            Self::Many => &MANY,
        }
    }
}

/// The stages of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub users: u32,
    pub stages: Vec<Stage>,
}

impl Plan {
    /// All stages are `scale` times as long as in the scenario.
    pub fn new(scenario: Scenario, users: u32, scale: f64) -> Self {
        let scaled = |stage: &Stage| Stage { seconds: stage.seconds * scale, ..*stage };
        Self { users, stages: scenario.stages().iter().map(scaled).collect() }
    }

    /// The users at the end of a stage.
    pub fn users_after(&self, stage: &Stage) -> u32 {
        (f64::from(self.users) * stage.to).round() as u32
    }

    /// The stage of a time since the beginning. What comes after the last one is of the last one.
    pub fn stage_at(&self, since: Duration) -> usize {
        let mut end = 0.0;
        let is_later = |stage: &&Stage| {
            end += stage.seconds;
            since.as_secs_f64() >= end
        };
        let before = self.stages.iter().take_while(is_later).count();
        before.min(self.stages.len().saturating_sub(1))
    }

    /// When a user begins, and when it ends. The first users stay longest.
    pub fn presence(&self, user: u32) -> (Duration, Duration) {
        let (mut begin, mut end) = (0.0, 0.0);
        let (mut at, mut before) = (0.0, 0.0);
        let user = f64::from(user);
        for stage in &self.stages {
            let after = f64::from(self.users_after(stage));
            if before <= user && user < after {
                begin = at + stage.seconds * (user - before) / (after - before);
            }
            if after <= user && user < before {
                end = at + stage.seconds * (before - user) / (before - after);
            }
            at += stage.seconds;
            before = after;
        }
        (Duration::from_secs_f64(begin), Duration::from_secs_f64(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_have_their_length_and_stages() {
        for (scenario, seconds, stages) in [(Scenario::Few, 120.0, 3), (Scenario::Many, 240.0, 7)] {
            let plan = Plan::new(scenario, scenario.users(), 1.0);
            assert_eq!(plan.stages.len(), stages);
            assert_eq!(plan.stages.iter().map(|stage| stage.seconds).sum::<f64>(), seconds);
            let users: Vec<u32> = plan.stages.iter().map(|one| plan.users_after(one)).collect();
            // The number of users rises, and falls once at the end, so each user is there once.
            assert!(users[..stages - 1].is_sorted());
            assert_eq!(users[stages - 2..], [scenario.users(), 0]);
        }
    }

    #[test]
    fn each_user_has_its_time() {
        let seconds = Duration::from_secs_f64;
        let plan = Plan::new(Scenario::Few, 10, 0.1);
        assert_eq!(plan.presence(0), (seconds(0.0), seconds(12.0)));
        assert_eq!(plan.presence(5), (seconds(1.5), seconds(10.5)));
        let plan = Plan::new(Scenario::Many, 100, 1.0);
        assert_eq!(plan.presence(9).0, seconds(27.0));
        assert_eq!(plan.presence(10).0, seconds(60.0));
        assert_eq!(plan.presence(50).0, seconds(130.0));
    }

    #[test]
    fn a_time_has_its_stage() {
        let plan = Plan::new(Scenario::Few, 10, 1.0);
        for (time, stage) in [(0, 0), (29, 0), (30, 1), (89, 1), (90, 2), (500, 2)] {
            assert_eq!(plan.stage_at(Duration::from_secs(time)), stage, "{time}");
        }
    }
}

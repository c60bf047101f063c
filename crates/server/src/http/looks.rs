//! Whether a connection is used, and takes its answers.

use std::time::Duration;

/// How often a connection is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(25);
/// Looks without a new request until a connection is closed: 75 seconds, also for one that sent
/// half of one.
const IDLE: u32 = 3;
/// Of so many answers that wait, at least one is taken until the next look.
const TAKEN: u64 = 8;

/// What was seen of a connection.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    begun: u64,
    ended: u64,
    quiet: u32,
}

/// What is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stays,
    IsIdle,
    TakesNoAnswers,
}

impl Looks {
    /// A look at a connection with so many requests, so many of which were answered, and their
    /// answers taken. No answer takes longer to make than the time between two looks.
    pub(crate) fn look(&mut self, begun: u64, ended: u64) -> Verdict {
        let waited = self.begun.saturating_sub(self.ended);
        let taken = ended.saturating_sub(self.ended);
        let is_quiet = begun == self.begun;
        (self.begun, self.ended) = (begun, ended);
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        if taken < waited.div_ceil(TAKEN) {
            Verdict::TakesNoAnswers
        } else if self.quiet >= IDLE {
            Verdict::IsIdle
        } else {
            Verdict::Stays
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_requests_is_idle_after_three_looks() {
        let mut looks = Looks::default();
        assert_eq!(looks.look(2, 2), Verdict::Stays);
        assert_eq!(looks.look(2, 2), Verdict::Stays);
        assert_eq!(looks.look(3, 3), Verdict::Stays);
        assert_eq!([(); 2].map(|()| looks.look(3, 3)), [Verdict::Stays; 2]);
        assert_eq!(looks.look(3, 3), Verdict::IsIdle);
        // One that never sent a request.
        let mut looks = Looks::default();
        assert_eq!([(); 2].map(|()| looks.look(0, 0)), [Verdict::Stays; 2]);
        assert_eq!(looks.look(0, 0), Verdict::IsIdle);
    }

    #[test]
    fn answers_that_waited_since_the_last_look_are_taken_or_the_connection_ends() {
        let mut looks = Looks::default();
        assert_eq!(looks.look(128, 0), Verdict::Stays, "they are new");
        assert_eq!(looks.look(140, 16), Verdict::Stays, "one in eight");
        assert_eq!(looks.look(200, 31), Verdict::TakesNoAnswers, "15 of 124");
        let mut looks = Looks::default();
        assert_eq!(looks.look(1, 0), Verdict::Stays);
        assert_eq!(looks.look(9, 0), Verdict::TakesNoAnswers);
    }
}

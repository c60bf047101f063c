//! The verdict of a run, and its exit status.

use std::process::ExitCode;

/// The answer to "does it survive a power cut?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The check passed on all states; without a check, nothing acknowledged could be lost.
    Kept,
    /// The check failed or did not end in time; without a check, something acknowledged could be
    /// lost.
    Lost,
    /// Too little was seen for an answer.
    NotMeasured,
    /// The check fails where nothing is lost, so it says nothing about power cuts.
    CheckBroken,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Lost => "lost",
            Self::NotMeasured => "not measured",
            Self::CheckBroken => "check broken",
        }
    }

    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Kept => ExitCode::SUCCESS,
            Self::Lost => ExitCode::from(1),
            Self::NotMeasured | Self::CheckBroken => ExitCode::from(3),
        }
    }
}

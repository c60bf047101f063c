//! The verdict of a run, and its exit status.

use std::process::ExitCode;

/// The answer to "does it survive a power cut?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Kept,
    Lost,
    /// Too little was seen for an answer.
    NotMeasured,
    /// The check fails where nothing is lost, so it says nothing about power cuts.
    CheckBroken,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Lost => "lost",
            Self::NotMeasured => "not measured",
            Self::CheckBroken => "check broken",
        }
    }

    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Kept => ExitCode::SUCCESS,
            Self::Lost => ExitCode::from(1),
            Self::NotMeasured | Self::CheckBroken => ExitCode::from(3),
        }
    }
}

//! The targets that packages are built for.

use std::str::FromStr;

/// A static target: its programs need no library of the system that runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    X86,
    Arm,
}

impl Target {
    pub const ALL: [Self; 2] = [Self::X86, Self::Arm];

    pub fn triple(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-musl",
            Self::Arm => "aarch64-unknown-linux-musl",
        }
    }

    /// The name of the architecture in Debian and in images of containers.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// The compilers of C that make objects for it, the best first.
    pub fn compilers(self) -> &'static [&'static str] {
        match (self, cfg!(target_arch = "x86_64")) {
            (Self::X86, true) => &["musl-gcc"],
            (Self::X86, false) => &["x86_64-linux-musl-gcc", "x86_64-linux-gnu-gcc"],
            (Self::Arm, false) => &["musl-gcc"],
            (Self::Arm, true) => &["aarch64-linux-musl-gcc", "aarch64-linux-gnu-gcc"],
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|target| target.triple() == text).ok_or_else(|| {
            let all = Self::ALL.map(Self::triple);
            format!("one of {}", all.join(", "))
        })
    }
}

//! Verifiable records, and their verification.

pub mod payload;
#[cfg(feature = "commands")]
pub mod readback;
#[cfg(feature = "commands")]
pub mod verify;

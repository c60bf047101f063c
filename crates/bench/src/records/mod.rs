//! Verifiable records, and their verification.

pub mod payload;
pub mod readback;
pub mod verify;

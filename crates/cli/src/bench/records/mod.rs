//! Records that can be checked, and the checks.

pub mod payload;
pub mod readback;
pub mod verify;

//! The caller's side of writing: appending, tickets and closing.

pub(crate) mod accept;
pub(crate) mod close;
pub(crate) mod input;
pub(crate) mod ticket;

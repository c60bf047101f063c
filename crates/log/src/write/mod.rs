//! The caller's side of writing: appending, tickets and closing.

pub(crate) mod accept;
pub(crate) mod input;
pub(crate) mod shutdown;
pub(crate) mod ticket;

//! The caller's side of writing: append, the ticket that resolves when the record is durable, and closing.

pub(crate) mod append;
pub(crate) mod close;
pub(crate) mod input;
pub(crate) mod ticket;

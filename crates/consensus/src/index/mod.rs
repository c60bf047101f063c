//! The index: for each slot, its state and the record with its value.
//!
//! `page` holds 4096 slots. `page_table` finds pages without a lock. `slot_locks` orders decisions.
//! `dirty` and `open_pages` track which pages a checkpoint and a promise have to visit.

pub(crate) mod dirty;
pub(crate) mod open_pages;
pub(crate) mod page;
pub(crate) mod page_table;
pub(crate) mod slot_locks;

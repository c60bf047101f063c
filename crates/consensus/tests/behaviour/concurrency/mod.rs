//! Many threads on one log.

mod history;
mod maintenance_beside_callers;
mod reads_beside_callers;
mod recorded_history;
mod threads;
mod wakers;

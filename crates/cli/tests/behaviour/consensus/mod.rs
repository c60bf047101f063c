//! `esker consensus` and `esker snapshot`.

mod inspection;
mod snapshots;

//! The format of a store on disk.

#[path = "../kit/fixture.rs"]
mod fixture;

mod golden_v1;

//! The promises of the component, as its users see them. Tests that need a process of their own,
//! and those of crashes, are beside this one.

#[path = "../kit/fixture.rs"]
mod fixture;

mod checkpoint;
mod concurrency;
mod contract;
mod format;

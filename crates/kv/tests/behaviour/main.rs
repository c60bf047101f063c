//! What the component promises, as its users see it. Tests that need a process of their own, and
//! those of crashes, are beside this one.

#[path = "../kit/fixture.rs"]
mod fixture;

mod checkpoint;
mod concurrency;
mod contract;
mod format;

//! The promises of the disks, as users see them. Tests that need a process of their own, and those
//! of crashes, are beside this one.

#[path = "../kit/by_path.rs"]
mod by_path;
#[path = "../kit/on_each.rs"]
mod on_each;

mod contract;
mod power_cuts;
mod simulated_faults;

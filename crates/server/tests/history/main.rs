//! What clients get is unique and in order, whatever happens to three nodes: processes that are
//! killed, stopped, cut off, given wrong clocks and bad disks.
//!
//! Two rounds of each fault; `ESKER_SOAK=n` makes it n of each.

mod child;
mod clients;
mod faults;
mod namespaces;
mod network;
mod nodes;
mod proxies;

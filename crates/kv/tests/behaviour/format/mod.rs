//! The format of a store on disk.

mod golden_v1;

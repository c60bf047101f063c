//! The promises of the commands, as users see them. Tests that need a process of their own, and
//! those of crashes, are beside this one.

use esker_testkit::commands as esker;

mod append;
mod consensus;
mod directories;
mod documents;
mod errors;
mod kv;

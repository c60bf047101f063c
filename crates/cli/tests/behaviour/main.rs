//! What the component promises, as its users see it. Tests that need a process of their own, and
//! those of crashes, are beside this one.

use esker_testkit::commands as esker;

mod append;
mod consensus;
mod documents;
mod errors;
mod kv;

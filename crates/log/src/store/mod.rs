//! The files on disk: how each is read and replaced. When that happens is decided elsewhere.
//!
//! `paths` names the files. `manifest`, `app_metadata` and the files of `sealed_file` are replaced
//! as a whole, `chunked_file` too, in chunks, and `incoming_file` is one that another node sends;
//! `snapshot_files` lists snapshots. `watermark_page` is overwritten in place.
//! `segment_reader` and `segment_scan` read segments as bytes and as units. `segment_table` lists
//! the segments of an open log, and `unit_times` finds where the units of a time begin.
//! `trim_point` is the lower end of what may be read.

pub(crate) mod app_metadata;
pub(crate) mod chunked_file;
pub(crate) mod directory;
pub(crate) mod file_mode;
pub(crate) mod incoming_file;
pub(crate) mod manifest;
pub(crate) mod paths;
pub(crate) mod sealed_file;
pub(crate) mod segment_footer;
pub(crate) mod segment_reader;
pub(crate) mod segment_scan;
pub(crate) mod segment_table;
pub(crate) mod snapshot_files;
pub(crate) mod space_reserve;
pub(crate) mod trim_point;
pub(crate) mod unit_times;
pub(crate) mod watermark_page;

//! The format on disk: golden files and properties of the decoders.

mod decoder;
mod golden_v2;
mod records;

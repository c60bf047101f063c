//! The format on disk: golden files and properties of the decoders.

#[path = "../kit/corruption_kit/mod.rs"]
mod corruption_kit;

mod decoder;
mod golden_v2;
mod records;

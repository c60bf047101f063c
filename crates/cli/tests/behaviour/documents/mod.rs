//! README, guides and `--help` are true.

mod chapters;
mod experiment;
mod help;
mod introduction;
mod published_figures;
mod reasons_against_an_lsm_store;
mod stability;

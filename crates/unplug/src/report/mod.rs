//! The answer: what could be lost, a failing state in words, and the verdict.

pub mod answer;
pub mod baseline;
pub mod losable;
pub mod mapping;
pub mod page;
mod rows;
pub mod sentence;
pub mod timeline;
pub mod verdict;

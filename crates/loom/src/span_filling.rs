//! Appenders fill their spans concurrently; the committer writes when all have finished. Guards
//! against a commit that writes a payload before it is complete.
#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::fill_tracker::FillTracker;

/// A buffer of two spans, shared as the log shares its staging buffer.
struct Spans([UnsafeCell<u32>; 2]);

// SAFETY: one appender writes each span. It is read only after `FillTracker` reports all as filled.
unsafe impl Sync for Spans {}

fn fill(cells: &Spans, progress: &FillTracker, n: usize) {
    // SAFETY: only this appender accesses this span.
    cells.0[n].with_mut(|cell| unsafe { *cell = 7 });
    progress.filled(8, 100 + n as u32);
}

#[test]
fn the_committer_sees_every_byte_that_was_filled() {
    loom::model(|| {
        let shared =
            Arc::new((Spans([UnsafeCell::new(0), UnsafeCell::new(0)]), FillTracker::default()));
        let appenders: Vec<_> = (0..2)
            .map(|n| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || fill(&shared.0, &shared.1, n))
            })
            .collect();
        let digest = loop {
            if let Some(digest) = shared.1.complete(16) {
                break digest;
            }
            thread::yield_now();
        };
        assert_eq!(digest, 201);
        for cell in &shared.0.0 {
            // SAFETY: all appenders have finished.
            cell.with(|cell| assert_eq!(unsafe { *cell }, 7));
        }
        for appender in appenders {
            appender.join().unwrap();
        }
    });
}

#[test]
fn a_count_is_used_again_for_a_later_unit() {
    loom::model(|| {
        let progress = Arc::new(FillTracker::default());
        progress.reset();
        progress.filled(8, 5);
        assert_eq!(progress.complete(8), Some(5));
        progress.reset();
        let appender = {
            let progress = Arc::clone(&progress);
            thread::spawn(move || progress.filled(16, 9))
        };
        loop {
            match progress.complete(16) {
                Some(digest) => break assert_eq!(digest, 9),
                None => thread::yield_now(),
            }
        }
        appender.join().unwrap();
    });
}

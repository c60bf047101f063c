//! A cell is read without a lock while another thread replaces its value. Guards against a reader
//! that sees a partly written value, and against freeing a value that a reader still uses.

use std::sync::Arc;

use loom::thread;

use crate::cell::Cell;
use crate::stubs::Plain;
use crate::sync::pin;

#[test]
fn loaded_value_is_complete() {
    loom::model(|| {
        let cell = Arc::new(Cell::new(Arc::new(Plain::new(7))));
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.swap(Some(Arc::new(Plain::new(8))), &pin()))
        };
        let guard = pin();
        let seen = cell.load(&guard).unwrap();
        assert!([7, 8].contains(&seen.get()));
        drop(guard);
        writer.join().unwrap();
        assert_eq!(cell.load(&pin()).unwrap().get(), 8);
    });
}

#[test]
fn loaded_value_lives_as_long_as_the_guard() {
    loom::model(|| {
        let first = Arc::new(Plain::new(7));
        let cell = Arc::new(Cell::new(Arc::clone(&first)));
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                let guard = pin();
                cell.swap(Some(Arc::new(Plain::new(8))), &guard);
                cell.swap(None, &guard);
            })
        };
        let guard = pin();
        if cell.load(&guard).is_some_and(|seen| seen.get() == 7) {
            thread::yield_now();
            // One reference of this test and one of the cell.
            assert_eq!(Arc::strong_count(&first), 2, "given back under a guard");
        }
        drop(guard);
        writer.join().unwrap();
        drop(pin());
        assert_eq!(Arc::strong_count(&first), 1, "given back in the end");
    });
}

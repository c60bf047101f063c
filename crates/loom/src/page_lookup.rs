//! The index: pages are found without a lock while the table is replaced by a longer one, or its
//! front is removed. Guards against a lost page, and a page visible before it is initialised.

use std::sync::Arc;

use loom::thread;

use crate::page_table::{Index, PageLookup};
use crate::sync::{Guard, pin};

/// Returns the content of the page, if it is in the index.
fn filled(index: &Index, number: u64, guard: &Guard) -> Option<u64> {
    match index.find(number, guard) {
        PageLookup::Page(page) => Some(page.filled.get()),
        PageLookup::Stored(_) | PageLookup::Absent => None,
    }
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

#[test]
fn a_page_is_found_while_the_table_grows() {
    model(|| {
        let index = Arc::new(Index::new(0));
        index.make(0, &pin()).unwrap();
        let maker = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let guard = pin();
                assert!(index.make(1, &guard).is_some());
                assert_eq!(filled(&index, 1, &guard), Some(101));
            })
        };
        let guard = pin();
        assert_eq!(filled(&index, 0, &guard), Some(100));
        assert!([None, Some(101)].contains(&filled(&index, 1, &guard)));
        drop(guard);
        maker.join().unwrap();
    });
}

#[test]
fn pages_that_are_made_at_the_same_time_are_all_there() {
    model(|| {
        let index = Arc::new(Index::new(0));
        let makers: Vec<_> = [0, 1]
            .into_iter()
            .map(|number| {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    let guard = pin();
                    Arc::clone(&index.make(number, &guard).unwrap())
                })
            })
            .collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        let guard = pin();
        for (page, number) in made.iter().zip(0..) {
            let PageLookup::Page(found) = index.find(number, &guard) else { panic!("lost") };
            assert!(Arc::ptr_eq(page, &found), "another took its place");
        }
    });
}

#[test]
fn a_page_stays_while_the_table_loses_its_front() {
    model(|| {
        let index = Arc::new(Index::new(0));
        index.make(1, &pin()).unwrap();
        let truncates = {
            let index = Arc::clone(&index);
            thread::spawn(move || index.drop_below(1, &pin()))
        };
        let guard = pin();
        assert_eq!(filled(&index, 1, &guard), Some(101));
        assert_eq!(filled(&index, 0, &guard), None);
        drop(guard);
        truncates.join().unwrap();
        assert_eq!(filled(&index, 1, &pin()), Some(101));
    });
}

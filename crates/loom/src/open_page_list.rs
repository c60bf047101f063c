//! The list of pages with uncommitted entries: a scan that removes an empty page never loses an
//! entry that arrives concurrently.

use loom::sync::Arc;
use loom::thread;

use crate::open_pages::{OpenCount, OpenPages};

#[test]
fn a_page_with_an_entry_is_listed() {
    loom::model(|| {
        let shared = Arc::new((OpenPages::default(), OpenCount::default()));
        shared.0.enter(7, &shared.1);
        shared.1.leave();
        let accepts = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.0.enter(7, &shared.1))
        };
        if shared.1.get() == 0 {
            shared.0.found_empty(7, &shared.1);
        }
        accepts.join().unwrap();
        assert_eq!((shared.1.get(), shared.0.list()), (1, vec![7]));
    });
}

#[test]
fn two_entries_and_one_removal_keep_the_page_listed() {
    loom::model(|| {
        let shared = Arc::new((OpenPages::default(), OpenCount::default()));
        let threads: Vec<_> = [true, false]
            .into_iter()
            .map(|stays| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.0.enter(7, &shared.1);
                    if !stays {
                        shared.1.leave();
                    }
                })
            })
            .collect();
        shared.0.found_empty(7, &shared.1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((shared.1.get(), shared.0.list()), (1, vec![7]));
    });
}

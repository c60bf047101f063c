//! Checkpoint copies of a page with a concurrent writer: each change is in the copy, or leaves the
//! page dirty for the next one. Guards against a change that no checkpoint stores.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::dirty::Dirty;
use crate::slot_locks::SlotLocks;

struct Page {
    slot_locks: SlotLocks<2>,
    dirty: Dirty,
    word: AtomicU64,
}

fn change(page: &Page, word: u64) {
    let _promise_state = page.slot_locks.lock_slot(0);
    page.word.store(word, Ordering::Release);
    page.dirty.set();
}

#[test]
fn a_change_is_in_the_copy_or_leaves_the_page_dirty() {
    loom::model(|| {
        let page =
            Page { slot_locks: SlotLocks::new(), dirty: Dirty::new(true), word: AtomicU64::new(1) };
        let page = Arc::new(page);
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                change(&page, 2);
                change(&page, 3);
            })
        };
        assert!(page.dirty.take());
        page.slot_locks.pass();
        let copied = page.word.load(Ordering::Acquire);
        writer.join().unwrap();
        let newest = page.word.load(Ordering::Acquire);
        assert!(copied == newest || page.dirty.take(), "{copied} was copied, {newest} is lost");
    });
}

//! The durable watermark is read without a lock. Guards against a reader that sees a sequence
//! number and a position below it, and against a waiter that is never woken.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::watermark::DurableWatermark;

/// Requirements: L-13.
#[test]
fn position_read_after_the_number_covers_it() {
    loom::model(|| {
        let published = Arc::new(DurableWatermark::new(4096, 0));
        let committer = {
            let published = Arc::clone(&published);
            thread::spawn(move || {
                published.publish(8192, 10);
                published.publish(12288, 20);
            })
        };
        let seq = published.seq();
        let position = published.position();
        assert!(position >= 4096 + seq / 10 * 4096);
        committer.join().unwrap();
    });
}

/// The protocol of `waiters`: a waiter checks, registers and checks again. The committer publishes
/// and then takes the registered waiters.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let published = Arc::new(DurableWatermark::new(4096, 0));
        let list: Arc<Mutex<Option<Arc<AtomicBool>>>> = Arc::default();
        let committer = {
            let (published, list) = (Arc::clone(&published), Arc::clone(&list));
            thread::spawn(move || {
                published.publish(8192, 1);
                if let Some(woken) = list.lock().unwrap().take() {
                    woken.store(true, Ordering::Release);
                }
            })
        };
        let woken = Arc::new(AtomicBool::new(false));
        *list.lock().unwrap() = Some(Arc::clone(&woken));
        let seen = published.seq() >= 1;
        committer.join().unwrap();
        assert!(seen || woken.load(Ordering::Acquire), "a waiter would sleep for ever");
    });
}

//! The durable watermark is read without a lock. Guards against a reader that combines the position
//! of one publication with the sequence number of another, in either order of reading, and against
//! a waiter that is never woken.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::watermark::DurableWatermark;

/// The position after a record, in blocks of ten records each.
const fn position_after(seq: u64) -> u64 {
    4096 + seq / 10 * 4096
}

/// Publishes two commits beside `read`, in every order that two threads can take.
fn beside_two_commits(read: impl Fn(&DurableWatermark) + Sync + Send + 'static) {
    loom::model(move || {
        let published = Arc::new(DurableWatermark::new(position_after(0), 0));
        let committer = {
            let published = Arc::clone(&published);
            thread::spawn(move || {
                published.publish(position_after(10), 10);
                published.publish(position_after(20), 20);
            })
        };
        read(&published);
        committer.join().unwrap();
        assert_eq!(published.load(), (position_after(20), 20));
    });
}

/// A stream that begins after the last record its caller has began past records of a commit that
/// was being published.
#[test]
fn position_and_number_are_of_one_publication() {
    beside_two_commits(|published| {
        let (position, seq) = published.load();
        assert_eq!(position, position_after(seq), "{position} and {seq} are two moments");
    });
}

#[test]
fn position_read_after_the_number_covers_it() {
    beside_two_commits(|published| {
        let seq = published.seq();
        let position = published.position();
        assert!(position >= position_after(seq));
    });
}

/// Guards against a record that a stream delivers although the watermark is still below it.
#[test]
fn number_read_after_the_position_covers_it() {
    beside_two_commits(|published| {
        let position = published.position();
        let seq = published.seq();
        assert!(position_after(seq) >= position);
    });
}

#[test]
fn suspended_publication_is_not_seen_in_part() {
    loom::model(|| {
        let published = DurableWatermark::new(position_after(0), 0);
        published.publish(position_after(10), 10);
        published.fill_next(position_after(20), 20);
        assert_eq!(published.load(), (position_after(10), 10));
        assert_eq!((published.position(), published.seq()), (position_after(10), 10));
        published.publish(position_after(20), 20);
        assert_eq!(published.load(), (position_after(20), 20));
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

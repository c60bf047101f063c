//! Requests for background work: work that is there before a request is done by a step after it,
//! and one thread works at a time.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use loom::thread;

use crate::request::Request;

#[derive(Default)]
struct BackgroundWork {
    request: Request,
    to_do: AtomicUsize,
    is_working: AtomicBool,
}

impl BackgroundWork {
    fn want(&self) {
        self.to_do.fetch_add(1, SeqCst);
        if self.request.make() {
            let done: Result<(), ()> = self.request.work(|| {
                assert!(!self.is_working.swap(true, SeqCst), "one thread works at a time");
                let found = self.to_do.swap(0, SeqCst);
                self.is_working.store(false, SeqCst);
                Ok(found > 0)
            });
            done.unwrap();
        }
    }
}

#[test]
fn no_request_is_missed() {
    loom::model(|| {
        let work = Arc::new(BackgroundWork::default());
        let other = {
            let work = Arc::clone(&work);
            thread::spawn(move || work.want())
        };
        work.want();
        other.join().unwrap();
        assert_eq!(work.to_do.load(SeqCst), 0);
        assert!(!work.request.is_made());
    });
}

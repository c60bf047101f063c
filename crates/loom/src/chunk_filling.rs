//! A chunk of the value cache, with a filler and readers. Guards against a reader that gets bytes
//! while they are written, and against a chunk that is filled again under a reader.

use loom::thread;

use crate::chunk::Filler;
use crate::sync::Arc;

#[test]
fn bytes_that_a_reader_gets_are_complete() {
    loom::model(|| {
        let mut filler = Filler::new(5, None);
        let chunk = Arc::clone(filler.chunk());
        let fills = thread::spawn(move || {
            assert_eq!(filler.push(b"ab"), Some(0));
            assert_eq!(filler.push(b"cd"), Some(2));
            assert_eq!(filler.push(b"ef"), None);
        });
        for (start, expected) in [(0, &b"ab"[..]), (2, b"cd")] {
            let found = loop {
                match chunk.bytes(start, 2) {
                    Some(found) => break found,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(found, expected);
        }
        assert_eq!(chunk.bytes(4, 1), None, "never filled");
        fills.join().unwrap();
        assert_eq!(chunk.bytes(0, 4), Some(&b"abcd"[..]));
    });
}

#[test]
fn a_chunk_is_filled_again_only_without_readers() {
    loom::model(|| {
        let mut filler = Filler::new(2, None);
        filler.push(b"ab").unwrap();
        let chunk = Arc::clone(filler.chunk());
        let reads = thread::spawn(move || {
            assert_eq!(chunk.bytes(0, 2), Some(&b"ab"[..]));
        });
        let old = Arc::clone(filler.chunk());
        drop(filler);
        let mut filler = Filler::new(2, Some(old));
        assert_eq!(filler.push(b"cd"), Some(0));
        assert_eq!(filler.chunk().bytes(0, 2), Some(&b"cd"[..]));
        reads.join().unwrap();
    });
}

//! Callers that are threads.

use std::io;
use std::sync::{OnceLock, mpsc};
use std::thread;

use crate::load::slice::SliceStart;

const STACK_BYTES: usize = 256 << 10;

/// Runs each caller on a thread of its own. All start to work at the same time, when all threads
/// have run `prepare`; `work` gets its result. Returns the start, and what `work` returned, in the
/// order of the callers.
///
/// # Errors
/// The system started no thread for one of the callers. Then none works.
///
/// # Panics
/// If a caller panics.
pub fn run<C: Send, P, T: Send>(
    callers: impl IntoIterator<Item = C>,
    prepare: impl Fn(&mut C) -> P + Sync,
    work: impl Fn(C, P, SliceStart) -> T + Sync,
) -> io::Result<(SliceStart, Vec<T>)> {
    // `None`: a thread is missing, and the others end.
    let start: OnceLock<Option<SliceStart>> = OnceLock::new();
    let (preparing, all_ready) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (start, prepare, work) = (&start, &prepare, &work);
        let mut spawn = |mut caller: C| {
            let preparing = preparing.clone();
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || {
                let prepared = prepare(&mut caller);
                drop(preparing);
                start.wait().map(|start| work(caller, prepared, start))
            })
        };
        let threads = callers.into_iter().map(&mut spawn).collect::<io::Result<Vec<_>>>();
        drop(preparing);
        // Nothing is ever sent: this ends when each thread has dropped its sender, by a panic, too.
        let _ = all_ready.recv();
        let begun = *start.get_or_init(|| threads.is_ok().then(SliceStart::now));
        let threads = threads?;
        let joined =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume(panic)));
        let results = joined.flatten().collect();
        Ok((begun.unwrap_or_else(SliceStart::now), results))
    })
}

fn resume(panic: Box<dyn std::any::Any + Send>) -> ! {
    std::panic::resume_unwind(panic)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::Instant;

    use super::*;

    #[test]
    fn all_callers_are_prepared_before_one_works() {
        let prepared = AtomicU32::new(0);
        let mut callers = [0_u32, 1, 2, 3];
        let (start, results) = run(
            &mut callers,
            |_| prepared.fetch_add(1, SeqCst),
            |caller, _, start| {
                *caller += 10;
                (*caller, prepared.load(SeqCst), start.begin)
            },
        )
        .unwrap();
        let expected: Vec<(u32, u32, Instant)> =
            (10..14).map(|caller| (caller, 4, start.begin)).collect();
        assert_eq!(results, expected);
        assert_eq!(callers, [10, 11, 12, 13]);
    }

    #[test]
    #[should_panic(expected = "no caller")]
    fn a_panic_of_a_caller_ends_the_run() {
        let _ = run(0..3, |caller| assert!(*caller != 1, "no caller"), |_, (), _| ());
    }
}

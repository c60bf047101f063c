//! What an oracle says of its clock.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{self, Write};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_oracle::OracleOptions;

use crate::clients::Cluster;

/// Lines that were logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn with(&self, text: &str) -> usize {
        let lines = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        lines.lines().filter(|line| line.contains(text)).count()
    }
}

/// An hour back, for many epochs, and right again; twice.
///
/// Requirements: E-8.
#[tokio::test]
async fn a_clock_that_goes_back_is_logged_once_for_each_time() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    // Of this thread, which has the oracle.
    let _guard = tracing::subscriber::set_default(log.finish());
    let mut options = OracleOptions::default();
    options.epoch_interval = Duration::from_millis(1);
    let cluster = Cluster::of(1, options).await;
    let oracle = cluster.oracle(1);
    let mut last = oracle.timestamps(1).await.unwrap().first;
    for episode in 1..=2 {
        for hours in [-1, 0] {
            cluster.ahead[&1].store(hours * 3600, SeqCst);
            let advances = oracle.stats().advances;
            while oracle.stats().advances < advances + 10 {
                let next = oracle.timestamps(1).await.unwrap().first;
                assert!(next > last, "{next:?} after {last:?}");
                last = next;
            }
        }
        assert_eq!(lines.with("the clock is behind the last epoch"), episode);
        assert_eq!(lines.with("epochs follow the clock again"), episode);
        assert_eq!(oracle.stats().backward_steps, episode as u64);
    }
}

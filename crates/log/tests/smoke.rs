use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_log::*;

fn collect(log: &Log) -> Vec<(u64, Vec<u8>)> {
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = stream.try_next().unwrap() {
        all.extend(batch.iter().map(|record| (record.seq.0, record.payload.to_vec())));
    }
    all
}

#[test]
fn appended_records_come_back_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    for round in 0..3u64 {
        let log = Log::open(&dir, Options::default()).unwrap();
        println!("{:?}", log.recovery());
        assert_eq!(log.durable(), Seq(round * 100));
        for n in 0..100u64 {
            let ticket = log.append(&(round * 100 + n).to_le_bytes()).unwrap();
            ticket.wait().unwrap();
        }
        let all = collect(&log);
        assert_eq!(all.len() as u64, (round + 1) * 100);
        for (n, (seq, payload)) in all.iter().enumerate() {
            assert_eq!(*seq, n as u64 + 1);
            assert_eq!(payload, &(n as u64).to_le_bytes());
            assert_eq!(&*log.read(*seq).unwrap(), payload);
        }
        log.close().unwrap();
    }
}

#[test]
fn threads_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let log = Log::open(&dir, Options::default()).unwrap();
    std::thread::scope(|scope| {
        for t in 0..16u64 {
            let log = log.clone();
            scope.spawn(move || {
                for n in 0..200u64 {
                    let payload = vec![t as u8; (n as usize * 37) % 3000];
                    log.append(&payload).unwrap().wait().unwrap();
                }
            });
        }
    });
    assert_eq!(collect(&log).len(), 3200);
    println!("{:?}", log.metadata());
    drop(log);
    let log = Log::open(&dir, Options::default()).unwrap();
    assert_eq!(collect(&log).len(), 3200);
}

#[test]
fn small_segments_rotate_and_survive_a_power_cut() {
    let disk = SimDisk::new(1);
    let mut options = Options::on(Arc::new(disk.clone()));
    options.engine = Some(Engine::manual());
    options.segment_size = 64 << 10;
    options.buffer_size = 8 << 10;
    let mut expect = Vec::new();
    for round in 0..4 {
        let log = Log::open("log", options.clone()).unwrap();
        println!("{:?}", log.recovery());
        assert_eq!(collect(&log), expect);
        for n in 0..100u64 {
            let payload = vec![n as u8; (n as usize * 97) % 5000];
            let at = log.append(&payload).unwrap().wait().unwrap();
            expect.push((at.seq.0, payload));
        }
        if round == 2 {
            let big = vec![7; 300_000];
            let at = log.append(&big).unwrap().wait().unwrap();
            expect.push((at.seq.0, big));
        }
        assert_eq!(collect(&log), expect);
        disk.power_cut(esker_disk::sim::Persist::Random);
        disk.power_on();
    }
}

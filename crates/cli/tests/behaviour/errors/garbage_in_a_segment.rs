//! Garbage where a segment should be: status 3, never a panic, never a record that was not written.

use crate::esker::{self, log, segments, workdir};

#[test]
fn garbage_in_the_middle_of_a_segment() {
    let (_guard, dir) = workdir();
    let input = esker::lines(1, 20_000);
    log("append", &dir, &["--segment-size", "64K"], input.as_bytes()).ok();
    let all = segments(&dir);
    let segment = &all[all.len() / 2];
    let mut bytes = std::fs::read(segment).unwrap();
    let third = bytes.len() / 3;
    bytes[third..2 * third].fill(0xA7);
    std::fs::write(segment, bytes).unwrap();

    let name = segment.to_str().unwrap();
    let cat = log("cat", &dir, &[], b"").exits(3).says(&[name, "esker repair"]);
    assert!(input.starts_with(cat.text()));
    log("verify", &dir, &[], b"").exits(3).says(&[name]);
}

#[test]
fn a_segment_that_is_all_garbage() {
    let (_guard, dir) = workdir();
    let input = esker::lines(1, 20_000);
    log("append", &dir, &["--segment-size", "64K"], input.as_bytes()).ok();
    for segment in segments(&dir) {
        let sound = std::fs::read(&segment).unwrap();
        std::fs::write(&segment, vec![0x5C; sound.len()]).unwrap();
        let name = segment.to_str().unwrap();
        let cat = log("cat", &dir, &[], b"").exits(3).says(&[name]);
        assert!(input.starts_with(cat.text()));
        log("append", &dir, &[], b"never\n").exits(3).says(&[name]);
        std::fs::write(&segment, sound).unwrap();
    }
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), input);
}

#[test]
fn a_segment_that_is_gone() {
    let (_guard, dir) = workdir();
    let input = esker::lines(1, 20_000);
    log("append", &dir, &["--segment-size", "64K"], input.as_bytes()).ok();
    let all = segments(&dir);
    std::fs::remove_file(&all[all.len() / 2]).unwrap();
    let cat = log("cat", &dir, &[], b"").exits(3).says(&["esker repair"]);
    assert!(input.starts_with(cat.text()));
    log("verify", &dir, &[], b"").exits(3);
    log("append", &dir, &[], b"never\n").exits(3);
}

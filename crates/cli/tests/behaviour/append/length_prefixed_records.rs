//! `--framing len32` takes records of any bytes, newlines included, and `cat --json` prints each on
//! a line of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::esker::{log, workdir};

pub fn framed(records: &[&[u8]]) -> Vec<u8> {
    let mut input = Vec::new();
    for record in records {
        input.extend_from_slice(&u32::try_from(record.len()).unwrap().to_le_bytes());
        input.extend_from_slice(record);
    }
    input
}

#[test]
fn len32_framing_keeps_records_of_any_bytes() {
    let (_guard, dir) = workdir();
    let large = vec![b'x'; 300_000];
    let records: [&[u8]; 5] =
        [b"two\nlines", b"", "g\u{fc}te \"\u{1F9CA}\"".as_bytes(), &[0xff, 0xfe, 0], &large];
    log("append", &dir, &["--framing", "len32"], &framed(&records)).ok();

    let reported = log("cat", &dir, &["--json"], b"").ok();
    let reported: Vec<serde_json::Value> =
        reported.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reported.len(), records.len());
    let mut position = 0;
    for (index, (json, record)) in reported.iter().zip(records).enumerate() {
        assert_eq!(json["seq"], index as u64 + 1);
        assert_eq!(json["prev"], index as u64);
        assert!(json["position"].as_u64().unwrap() > position);
        position = json["position"].as_u64().unwrap();
        match std::str::from_utf8(record) {
            Ok(text) => assert_eq!(json["payload"], text),
            Err(_) => assert_eq!(json["payload_b64"], "//4A"),
        }
        assert!(json["time"].as_str().unwrap().ends_with('Z'));
        assert_eq!(json.as_object().unwrap().len(), 5);
    }
}

#[test]
fn a_record_that_is_cut_fails_and_those_before_it_are_kept() {
    let (_guard, dir) = workdir();
    let mut input = framed(&[b"kept", b"kept, too", b"cut"]);
    input.pop();
    log("append", &dir, &["--framing", "len32"], &input)
        .exits(1)
        .says(&["inside record 3", "records through 2 are durable"]);
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"kept\nkept, too\n");
    // It was closed cleanly all the same.
    assert_eq!(log("append", &dir, &[], b"").ok().err, "");
}

//! Timestamps of 64 bits beside those of 16 bytes.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use esker_client::{AttemptErrorKind, Client, Error, Range, Timestamp};
use esker_oracle::TimestampWidth::{Bits64, Bits128};
use tokio::time::timeout;

use crate::fake::{Fake, HeldAnswers, Issuer, Reply, TEST_TIMEOUT};

const MILLISECOND: u64 = 1_700_000_000_000;
const INDEX_MAX: u64 = Timestamp::U64_INDEX_MAX;

/// A timestamp of 64 bits.
fn bits(millisecond: u64, index: u64) -> u64 {
    (millisecond << 18) + index
}

/// A range of timestamps of 64 bits.
fn body(first: u64, count: u64) -> Vec<u8> {
    [first.to_be_bytes(), count.to_be_bytes()].concat()
}

#[tokio::test]
async fn numbers_are_those_of_the_answer() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let client = fake.client().build().unwrap();
    let first = bits(MILLISECOND, 5);
    fake.answers(move |count| Reply::new(200, body(first, count.into())));
    assert_eq!(client.timestamp_u64().await.unwrap(), first);
    fake.answers(move |count| Reply::new(200, body(first + 1, count.into())));
    assert_eq!(client.timestamps_u64(3).await.unwrap(), first + 1..=first + 3);
    let last = bits(MILLISECOND, INDEX_MAX);
    fake.answers(move |count| Reply::new(200, body(last - 1, count.into())));
    let deadline = Instant::now() + TEST_TIMEOUT;
    assert_eq!(client.timestamps_u64_by(2, deadline).await.unwrap(), last - 1..=last);
    assert_eq!((fake.asked(), fake.widths()), (vec![1, 3, 2], vec![Bits64; 3]));
}

/// Answers with timestamps of 16 bytes, and answers that are cut off or have something else.
#[tokio::test]
async fn malformed_answers_of_64_bits_are_retried_until_the_deadline() {
    let one = body(bits(MILLISECOND, 1), 1);
    let of_16_bytes = Timestamp { epoch: MILLISECOND * 1_000_000, index: 7 }.to_bytes();
    for (malformed, why) in [
        (one[..15].to_vec(), "16 bytes"),
        (one[..8].to_vec(), "16 bytes"),
        (Vec::new(), "16 bytes"),
        ([&one[..], b"x"].concat(), "16 bytes"),
        ([&of_16_bytes[..], &one[8..]].concat(), "16 bytes"),
        (of_16_bytes.to_vec(), "count"),
        (body(bits(MILLISECOND, 1), 2), "count"),
        (body(bits(MILLISECOND, 0), 1), "at least 1"),
        (body(u64::MAX, 1), "last epoch"),
    ] {
        let reply = Reply::new(200, malformed);
        let fake = Fake::scripted(vec![reply.clone()], &Issuer::new()).await;
        let client = fake.client().build().unwrap();
        assert_eq!(client.timestamp_u64().await.unwrap(), 1, "{reply:?}");
        assert_eq!((fake.asked(), client.stats().retries), (vec![1, 1], 1), "{reply:?}");
        fake.answers(move |_| reply.clone());
        assert!(malformed_reason(&client, 1).await.contains(why), "{why}");
    }
    let fake = Fake::issuing(&Issuer::new()).await;
    fake.answers(|_| Reply::new(200, body(bits(MILLISECOND, INDEX_MAX), 2)));
    let why = malformed_reason(&fake.client().build().unwrap(), 2).await;
    assert_eq!(why, "the last index is too high");
}

/// Calls until a deadline passes after an answer was malformed, and returns the reason.
async fn malformed_reason(client: &Client, count: u32) -> &'static str {
    let called = async {
        loop {
            let deadline = Instant::now() + Duration::from_millis(20);
            let error = client.timestamps_u64_by(count, deadline).await.unwrap_err();
            assert!(matches!(error, Error::Deadline { .. }), "{error}");
            if let Error::Deadline { last: Some(last) } = error
                && let AttemptErrorKind::Malformed(why) = last.kind
            {
                return why;
            }
        }
    };
    timeout(TEST_TIMEOUT, called).await.unwrap()
}

/// Callers of both widths that come in turns share two requests, one of each width.
#[tokio::test]
async fn callers_of_both_widths_share_a_request_of_each() {
    let held = HeldAnswers::start(&Issuer::new()).await;
    let client = held.fake.client().build().unwrap();
    let narrow = |count| {
        let client = client.clone();
        tokio::spawn(async move { client.timestamps_u64(count).await.unwrap() })
    };
    let wide = |count| {
        let client = client.clone();
        tokio::spawn(async move { client.timestamps(count).await.unwrap() })
    };
    let mut busy = Vec::new();
    for requests in 1..=2 {
        busy.push(wide(1));
        held.fake.wait_for_requests(requests).await;
    }
    let waiting: Vec<_> = (0..20).map(|_| (wide(2), narrow(3))).collect();
    tokio::task::yield_now().await;
    for requests in 3..=4 {
        held.release(1);
        held.fake.wait_for_requests(requests).await;
    }
    assert_eq!(held.fake.asked(), [1, 1, 40, 60]);
    assert_eq!(held.fake.widths(), [Bits128, Bits128, Bits128, Bits64]);
    held.release(2);
    for (at, (wide, narrow)) in waiting.into_iter().enumerate() {
        let at = at as u64;
        let first = Timestamp { epoch: 7, index: 3 + 2 * at };
        assert_eq!(wide.await.unwrap(), Range { first, count: 2 });
        assert_eq!(narrow.await.unwrap(), 43 + 3 * at..=45 + 3 * at);
    }
    for busy in busy {
        busy.await.unwrap();
    }
}

/// A timestamp is above those of both widths that were received before.
#[tokio::test]
async fn both_widths_are_in_one_order() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let client = fake.client().build().unwrap();
    // Not at the beginning of a millisecond.
    let epoch = MILLISECOND * 1_000_000 + 999_999;
    let answers = |index| {
        let first = Timestamp { epoch, index };
        fake.answers(move |count| Reply::range(Range { first, count }));
    };
    let in_order = |error: Error, received: Timestamp| match error {
        Error::NotMonotonic { highest, .. } => assert_eq!(highest, received),
        other => assert!(matches!(other, Error::NotMonotonic { .. }), "{other:?}"),
    };
    answers(5);
    let wide = client.timestamps(5).await.unwrap().last().unwrap();
    for lower in [1, 9] {
        answers(lower);
        in_order(client.timestamp_u64().await.unwrap_err(), wide);
        in_order(client.timestamp().await.unwrap_err(), wide);
    }
    answers(10);
    let narrow = client.timestamp_u64().await.unwrap();
    assert_eq!(narrow, bits(MILLISECOND, 10));
    for lower in [1, 10] {
        answers(lower);
        let narrow = Timestamp::from_u64(narrow).unwrap();
        in_order(client.timestamp().await.unwrap_err(), narrow);
        in_order(client.timestamp_u64().await.unwrap_err(), narrow);
    }
    answers(11);
    assert_eq!(client.timestamp().await.unwrap(), Timestamp { epoch, index: 11 });
}

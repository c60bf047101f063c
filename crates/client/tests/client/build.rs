//! Invalid options of clients, and invalid calls.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use esker_client::{Client, Error};

use crate::fake::{Fake, Issuer};

#[tokio::test]
async fn wrong_options_are_refused() {
    let error = Client::builder().build().unwrap_err();
    assert!(matches!(error, Error::NoEndpoint), "{error}");
    for wrong in ["", "a", "https://a", "http://a:1/b", "a:0", "a:99999", "ftp://a:1", "a b:1"] {
        let error = Client::builder().endpoint(wrong).build().unwrap_err();
        assert!(
            matches!(&error, Error::InvalidEndpoint(text) if text == wrong),
            "{wrong}: {error}"
        );
    }
    let any = || Client::builder().endpoint("http://node-1.example:8080/");
    let many = (0..65).fold(any(), |builder, port| builder.endpoint(format!("a:{}", port + 1)));
    let wrong = [
        any().timeout(Duration::ZERO),
        any().timeout(Duration::MAX),
        any().connect_timeout(Duration::ZERO),
        any().queue(0),
        any().queue(usize::MAX),
        any().max_timestamps(0),
        any().max_timestamps(65_537),
        many,
    ];
    for wrong in wrong {
        let error = wrong.build().unwrap_err();
        assert!(matches!(error, Error::InvalidOption(_)), "{error}");
    }
    any().endpoint("[::1]:8080").build().unwrap();
}

#[tokio::test]
async fn a_count_has_bounds() {
    let fake = Fake::issuing(&Issuer::new()).await;
    let client = fake.client().max_timestamps(5).build().unwrap();
    for count in [0, 6, u32::MAX] {
        let error = client.timestamps(count).await.unwrap_err();
        assert!(matches!(error, Error::Count { most: 5, .. }), "{error}");
        let error = client.timestamps_u64(count).await.unwrap_err();
        assert!(matches!(error, Error::Count { most: 5, .. }), "{error}");
    }
    assert_eq!(client.stats().failures, 6);
    assert_eq!(client.timestamps(5).await.unwrap().count, 5);
    assert_eq!(client.timestamps_u64(5).await.unwrap().count(), 5);
    assert_eq!(fake.asked(), [5, 5]);
}

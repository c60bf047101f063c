//! An answer, as a client sees it.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use hyper::HeaderMap;

#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpAnswer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

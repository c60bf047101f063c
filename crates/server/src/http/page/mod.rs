//! The page of a node for browsers: `GET /`, with its style and its script.
//!
//! All three are in the binary, and load nothing from elsewhere. The page reads what every client
//! may read, and changes the cluster with a token that its user types.

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

use crate::http::answer::{self, Answer};
use crate::http::body::AnswerBody;
use crate::http::client_connection::ClientConnection;
use crate::memory_budget::ANSWER_BYTES_MAX;

/// The longest page, of all its parts.
const PAGE_BYTES_MAX: usize = 60 << 10;
/// The page is made of its own parts alone, asks its own node alone, and is in no frame. Its script
/// writes no markup.
const CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);

/// A part of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagePart {
    Document,
    Style,
    Script,
}

impl PagePart {
    const fn content(self) -> &'static str {
        match self {
            Self::Document => include_str!("page.html"),
            Self::Style => include_str!("page.css"),
            // One script, whose files share their names.
            Self::Script => concat!(
                "\"use strict\";\n",
                include_str!("quantities.js"),
                include_str!("node.js"),
                include_str!("alerts.js"),
                include_str!("members.js"),
                include_str!("changes.js"),
                include_str!("page.js"),
            ),
        }
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Document => "text/html; charset=utf-8",
            Self::Style => "text/css; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
        })
    }
}

const _: () = {
    let [document, style, script] = [PagePart::Document, PagePart::Style, PagePart::Script];
    let bytes = document.content().len() + style.content().len() + script.content().len();
    assert!(bytes <= PAGE_BYTES_MAX, "the page is small");
    assert!(PAGE_BYTES_MAX <= ANSWER_BYTES_MAX, "the page is an answer");
};

/// Answers with a part of the page.
pub(crate) async fn answer(client: &ClientConnection, part: PagePart) -> Answer {
    let content = Bytes::from_static(part.content().as_bytes());
    let Ok(permit) = client.permit_answer(content.len()).await else { return answer::busy() };
    let mut answer = Answer::new(AnswerBody::new(content, permit));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, part.content_type());
    headers.insert(CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

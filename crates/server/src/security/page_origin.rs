//! The origins of pages in browsers.
//!
//! A browser sends requests of any page that its user has open, with what the user's machine and
//! certificates may do. A page may change the cluster only if this node gave it to the browser: its
//! `Origin` is the host of the request. That alone is no proof on loopback, where changes may need
//! no token: the name of a stranger's page can be made to resolve to a loopback address (DNS
//! rebinding). So there the host itself has to be on loopback.

use hyper::Uri;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};

/// The relation of a page to the host of its request, as the browser sees it.
const FETCH_SITE_HEADER: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the host of a request, with its port if it has one; `None` if it names no host.
pub(crate) fn requested_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let authority = uri.authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| headers.get(HOST)?.to_str().ok());
    host.filter(|host| !host.is_empty())
}

/// Whether a request is of no page, or of one that its host gave to the browser.
pub(crate) fn is_of_own_page(headers: &HeaderMap, host: Option<&str>, is_encrypted: bool) -> bool {
    if headers.get(FETCH_SITE_HEADER).is_some_and(|site| site != "same-origin") {
        return false;
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => host.is_some_and(|host| is_origin(origin, host, is_encrypted)),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a request is of any page in a browser. Where no token is needed, nothing distinguishes
/// the page of this node from one of a stranger whose name was made to resolve to it.
pub(crate) fn is_of_page(headers: &HeaderMap) -> bool {
    let is_from_site = headers.get(FETCH_SITE_HEADER).is_some_and(|site| site != "none");
    headers.contains_key(ORIGIN) || is_from_site
}

/// Whether this is the origin of pages of a host. A proxy in front of a node without TLS may add
/// it; none takes it away from one that has it.
fn is_origin(origin: &HeaderValue, host: &str, is_encrypted: bool) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let plain = origin.strip_prefix("http://").filter(|_| !is_encrypted);
    let named = origin.strip_prefix("https://").or(plain);
    named.is_some_and(|named| named.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_page_of_the_same_host_and_port_is_own() {
        let host = Some("127.0.0.1:8080");
        let page = |origin: &str| is_of_own_page(&headers(&[("origin", origin)]), host, false);
        assert!(is_of_own_page(&headers(&[]), host, false) && page("http://127.0.0.1:8080"));
        for other in [
            "http://127.0.0.1:3000",
            "http://127.0.0.1",
            "http://localhost:8080",
            "http://127.0.0.1:8080.example",
            "http://127.0.0.1:8080/",
            "ftp://127.0.0.1:8080",
            "127.0.0.1:8080",
            "http://",
            "null",
            "",
        ] {
            assert!(!page(other), "{other:?}");
        }
        let two = [("origin", "http://127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")];
        assert!(!is_of_own_page(&headers(&two), host, false));
        assert!(!is_of_own_page(&headers(&two[..1]), None, false));
    }

    #[test]
    fn every_page_of_a_browser_is_one() {
        for page in [
            ("origin", "http://127.0.0.1:8080"),
            ("origin", "null"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "cross-site"),
        ] {
            assert!(is_of_page(&headers(&[page])), "{page:?}");
        }
        for other in [("sec-fetch-site", "none"), ("user-agent", "curl/8")] {
            assert!(!is_of_page(&headers(&[other])), "{other:?}");
        }
    }

    /// A stranger on the way writes pages of `http://`, and no page of `https://`.
    #[test]
    fn a_page_without_tls_is_not_own_over_tls() {
        let own = |origin| is_of_own_page(&headers(&[("origin", origin)]), Some("a.example"), true);
        assert!(own("https://a.example") && !own("http://a.example"));
    }

    #[test]
    fn the_browser_may_say_that_a_page_is_of_another_site() {
        let origin = ("origin", "http://localhost:80");
        for (site, is_own) in
            [("same-origin", true), ("same-site", false), ("cross-site", false), ("none", false)]
        {
            for named in [&[origin, ("sec-fetch-site", site)][..], &[("sec-fetch-site", site)]] {
                let own = is_of_own_page(&headers(named), Some("localhost:80"), false);
                assert_eq!(own, is_own, "{named:?}");
            }
        }
    }

    #[test]
    fn the_host_is_that_of_the_address_before_the_header() {
        let host = headers(&[("host", "b:2")]);
        assert_eq!(requested_host(&Uri::from_static("/x"), &host), Some("b:2"));
        assert_eq!(requested_host(&Uri::from_static("http://a:1/x"), &host), Some("a:1"));
        assert_eq!(requested_host(&Uri::from_static("/x"), &headers(&[("host", "")])), None);
        assert_eq!(requested_host(&Uri::from_static("/x"), &headers(&[])), None);
    }
}

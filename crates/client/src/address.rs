//! The address of a node.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The longest name of a host, with a colon and a port.
const ADDRESS_BYTES_MAX: usize = 253 + 6;

/// The scheme of a URL: whether connections use TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// The host and port of a node. Nothing else gets into a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(Arc<str>);

impl Address {
    /// Parses a URL, or a host and a port. `None` for another scheme than `http` and `https`, for a
    /// path, and without a port.
    pub(crate) fn from_endpoint(text: &str) -> Option<(Option<Scheme>, Self)> {
        let (scheme, text) = match text.split_once("://") {
            Some(("http", text)) => (Some(Scheme::Http), text),
            Some(("https", text)) => (Some(Scheme::Https), text),
            Some(_) => return None,
            None => (None, text),
        };
        Some((scheme, Self::parse(text.strip_suffix('/').unwrap_or(text), true)?))
    }

    /// Parses the address that a node names for another one. An unspecified address is not that of
    /// one host.
    pub(crate) fn from_node(text: &str) -> Option<Self> {
        Self::parse(text, false)
    }

    fn parse(text: &str, allows_unspecified: bool) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_host = match (host.parse::<Ipv4Addr>(), host.strip_prefix('[')) {
            (Ok(ip), _) => allows_unspecified || !ip.is_unspecified(),
            (_, Some(ip)) => {
                let ip = ip.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?;
                allows_unspecified || !ip.is_unspecified()
            }
            // With digits and dots alone it is no name.
            _ => host.bytes().all(named) && host.bytes().any(|byte| byte.is_ascii_alphabetic()),
        };
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0);
        (is_host && is_port && text.len() <= ADDRESS_BYTES_MAX).then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or(&*self.0, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Scheme::Https;
    use super::*;

    #[test]
    fn an_address_is_that_of_one_host() {
        for right in ["127.0.0.1:8080", "node-1.example:1", "[::1]:65535", "esker_1:80"] {
            assert!(Address::from_node(right).is_some(), "{right}");
            let address = Address::from_node(right).unwrap();
            let schemes = [("", None), ("http://", Some(Scheme::Http)), ("https://", Some(Https))];
            for (prefix, scheme) in schemes {
                let endpoint = Address::from_endpoint(&format!("{prefix}{right}/"));
                assert_eq!(endpoint, Some((scheme, address.clone())), "{right}");
            }
        }
        let host = |text| Address::from_node(text).unwrap().host().to_owned();
        assert_eq!((host("[::1]:8080"), host("a.example:1")), ("::1".into(), "a.example".into()));
        for any in ["0.0.0.0:8080", "[::]:8080"] {
            assert!(Address::from_endpoint(any).is_some() && Address::from_node(any).is_none());
        }
        let long = format!("{}:80", "a".repeat(260));
        let wrong = [
            "HTTPS//a:80",
            "ftp://a:80",
            "http://a",
            "http://a:80/b",
            "a",
            "a:",
            ":80",
            "a:0",
            "a:+80",
            "a:65536",
            "a b:80",
            "::1:80",
            "[::1:80",
            "256.1.1.1:80",
            "a@b:80",
            "a/b:80",
            "\u{100}bad:1",
            "a\r\nb:80",
            "",
            &long,
        ];
        for wrong in wrong {
            assert!(Address::from_endpoint(wrong).is_none(), "{wrong}");
            assert!(Address::from_node(wrong).is_none(), "{wrong}");
        }
        for url in ["http://a:80", "https://a:80"] {
            assert!(Address::from_node(url).is_none());
        }
    }
}

//! Patterns that keys are matched with, in time proportional at most to the length of the pattern
//! times that of the key.
//!
//! `*` matches any characters, `?` one, `[abc]`, `[a-z]` and `[!x]` one of a set or outside it.
//! Everything else matches itself. A character is one of UTF-8 where the bytes are valid, and
//! otherwise a byte. A `]` directly after `[` or `[!` belongs to the set. A pattern with a `[` that
//! is not closed matches nothing.

use std::sync::Arc;

/// From this number on, keys are matched by several threads.
const PARALLEL_KEYS_MIN: usize = 1000;
const MATCH_THREADS_MAX: usize = 8;

/// A pattern that was parsed.
#[derive(Debug)]
pub(super) struct Glob(Option<Vec<GlobToken>>);

#[derive(Debug, PartialEq, Eq)]
enum GlobToken {
    Any,
    One,
    Set { inverted: bool, ranges: Vec<(u32, u32)> },
    Character(u32),
}

/// The characters of bytes.
struct Characters<'a>(&'a [u8]);

/// The first number of bytes that are no UTF-8: above every character.
const INVALID_BYTE_BASE: u32 = 0x0011_0000;

impl Characters<'_> {
    fn peek(&self) -> Option<(u32, usize)> {
        let first = *self.0.first()?;
        let len = match first {
            0..=0x7f => return Some((u32::from(first), 1)),
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => 4,
        };
        let valid = self.0.get(..len).and_then(|bytes| std::str::from_utf8(bytes).ok());
        match valid.and_then(|text| text.chars().next()) {
            Some(character) => Some((u32::from(character), len)),
            None => Some((INVALID_BYTE_BASE + u32::from(first), 1)),
        }
    }
}

impl Iterator for Characters<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (character, len) = self.peek()?;
        self.0 = &self.0[len..];
        Some(character)
    }
}

fn code_point(character: char) -> u32 {
    u32::from(character)
}

impl Glob {
    /// Returns the keys that match, in their order.
    pub(super) fn matching(&self, keys: &[Arc<[u8]>]) -> Vec<Arc<[u8]>> {
        let matching = |keys: &[Arc<[u8]>]| -> Vec<Arc<[u8]>> {
            keys.iter().filter(|key| self.matches(key)).cloned().collect()
        };
        let threads =
            std::thread::available_parallelism().map_or(1, |all| all.get().min(MATCH_THREADS_MAX));
        if keys.len() < PARALLEL_KEYS_MIN || threads == 1 {
            return matching(keys);
        }
        let chunk_len = keys.len().div_ceil(threads);
        std::thread::scope(|scope| {
            let (first, others) = keys.split_at(chunk_len);
            let started: Vec<_> = others
                .chunks(chunk_len)
                .map(|keys| {
                    (keys, std::thread::Builder::new().spawn_scoped(scope, || matching(keys)))
                })
                .collect();
            let mut all = matching(first);
            for (keys, thread) in started {
                // Without a thread, or after a panic in one, this one matches them.
                let found = thread.ok().and_then(|thread| thread.join().ok());
                all.extend(found.unwrap_or_else(|| matching(keys)));
            }
            all
        })
    }

    pub(super) fn parse(pattern: &[u8]) -> Self {
        let (mut rest, mut tokens) = (Characters(pattern), Vec::new());
        while let Some(character) = rest.next() {
            tokens.push(if character == code_point('*') {
                GlobToken::Any
            } else if character == code_point('?') {
                GlobToken::One
            } else if character == code_point('[') {
                let Some(set) = parse_set(&mut rest) else { return Self(None) };
                set
            } else {
                GlobToken::Character(character)
            });
        }
        tokens.dedup_by(|a, b| *a == GlobToken::Any && *b == GlobToken::Any);
        Self(Some(tokens))
    }

    pub(super) fn matches(&self, key: &[u8]) -> bool {
        let Some(tokens) = &self.0 else { return false };
        let (mut at, mut rest) = (0, key);
        // After a `*`: the token that follows it, and what of the key it has not passed.
        let mut last_any: Option<(usize, &[u8])> = None;
        loop {
            match (tokens.get(at), Characters(rest).peek()) {
                (Some(GlobToken::Any), _) => {
                    at += 1;
                    last_any = Some((at, rest));
                }
                (Some(token), Some((character, len))) if token.matches(character) => {
                    at += 1;
                    rest = &rest[len..];
                }
                (None, None) => return true,
                _ => {
                    // Let the last `*` match one character more.
                    let Some((after, passed)) = last_any else { return false };
                    let Some((_, len)) = Characters(passed).peek() else { return false };
                    (at, rest) = (after, &passed[len..]);
                    last_any = Some((after, rest));
                }
            }
        }
    }
}

/// Parses a set after its `[`; `None` if it is not closed.
fn parse_set(rest: &mut Characters<'_>) -> Option<GlobToken> {
    let mut ranges = Vec::new();
    let mut next = rest.next()?;
    let inverted = next == code_point('!');
    if inverted {
        next = rest.next()?;
    }
    loop {
        let low = next;
        next = rest.next()?;
        if next == code_point('-')
            && Characters(rest.0).peek().is_some_and(|(end, _)| end != code_point(']'))
        {
            ranges.push((low, rest.next()?));
            next = rest.next()?;
        } else {
            ranges.push((low, low));
        }
        if next == code_point(']') {
            return Some(GlobToken::Set { inverted, ranges });
        }
    }
}

impl GlobToken {
    fn matches(&self, character: u32) -> bool {
        match self {
            GlobToken::Any => false,
            GlobToken::One => true,
            GlobToken::Character(own) => *own == character,
            GlobToken::Set { inverted, ranges } => {
                let within = |(low, high): &(u32, u32)| (*low..=*high).contains(&character);
                ranges.iter().any(within) != *inverted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, key: &str) -> bool {
        Glob::parse(pattern.as_bytes()).matches(key.as_bytes())
    }

    #[test]
    fn patterns_match_what_they_say() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("?", "", false),
            ("?", "ab", false),
            ("?", "\u{1F511}", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a**c", "ac", true),
            ("*.log", "x.log", true),
            ("[abc]", "b", true),
            ("[abc]", "d", false),
            ("[a-c]x", "cx", true),
            ("[a-c]x", "dx", false),
            ("[!x]", "y", true),
            ("[!x]", "x", false),
            ("[!x]", "", false),
            ("[!a-z]", "Q", true),
            ("[!a-z]", "q", false),
            ("[а-я]", "ж", true),
            ("[a-]", "-", true),
            ("[]]", "]", true),
            ("[!]]", "]", false),
            ("[-a]", "-", true),
            ("[a", "a", false),
            ("[a", "[a", false),
            ("x[", "x[", false),
            ("[", "[", false),
            ("[]", "", false),
            ("[!", "!", false),
            ("*[", "anything", false),
            ("]", "]", true),
            ("table/*/log", "table/7/log", true),
            ("table/?", "table/10", false),
            ("*a*b", "aXbYb", true),
            ("*a*b", "aXbY", false),
            ("[*]", "*", true),
            ("[*]", "a", false),
        ];
        for (pattern, key, expected) in cases {
            assert_eq!(matches(pattern, key), expected, "{pattern:?} and {key:?}");
        }
        assert!(Glob::parse(b"a?b").matches(b"a\xffb"));
        assert!(Glob::parse(b"\xff*").matches(b"\xff\x00"));
        assert!(!Glob::parse("ÿ".as_bytes()).matches(b"\xff"));
    }

    /// Exponential in other matchers: billions of steps for this one.
    #[test]
    fn time_is_bounded_by_both_lengths() {
        let key = "a".repeat(4096);
        assert!(!matches(&format!("{}b", "*a".repeat(1000)), &key));
        assert!(matches(&"*a".repeat(1000), &key));
    }

    /// The obvious matcher, which takes exponential time.
    fn recursive(pattern: &[char], key: &[char]) -> bool {
        match (pattern.first(), key.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                recursive(&pattern[1..], key) || (!key.is_empty() && recursive(pattern, &key[1..]))
            }
            (Some('?'), Some(_)) => recursive(&pattern[1..], &key[1..]),
            (Some(own), Some(character)) => own == character && recursive(&pattern[1..], &key[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_matches_as_the_obvious_matcher_does(pattern in "[ab*?é]{0,9}", key in "[abé]{0,9}") {
            let (p, k): (Vec<_>, Vec<_>) = (pattern.chars().collect(), key.chars().collect());
            prop_assert_eq!(matches(&pattern, &key), recursive(&p, &k));
        }

        #[test]
        fn any_bytes_are_a_pattern(
            pattern in prop::collection::vec(any::<u8>(), 0..40),
            key in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            Glob::parse(&pattern).matches(&key);
            prop_assert!(Glob::parse(b"*").matches(&key));
        }
    }
}

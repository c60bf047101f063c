"""A conformance suite for clients of the timestamp service, in any language: see README.md."""

"""The cases, by sections of the guide."""

from . import answers, changes, discovery, order, requests, retries, sharing, tls

__all__ = ["answers", "changes", "discovery", "order", "requests", "retries", "sharing", "tls"]

"""Header compression of HTTP/2 (RFC 7541): decodes everything, encodes literals alone."""

from __future__ import annotations

TABLE_BYTES = 4096
ENTRY_BYTES = 32

STATIC = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""),
    ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""),
    ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
]  # fmt: skip

# The lengths of the codes of the bytes 0 to 255, as letters: "a" is 5 bits. The code is canonical,
# so that the lengths are all of it.
CODE_LENGTHS = (
    "isxxxxxxxtzxxzxxxxxxxxzxxxxxxxxxbffhibdgffdgdbbbaaabbbbbbbcdkbhfibccccccccccccccccccccccdcdioijb"
    "kabababbbaccbbbabcbaabccccckgjixprpprrrsrssssststtrstssssqrsrsstrqprrssqsrrtqrssqqrqsrssprrrsrrs"
    "vvporsruvvvwwvtuoqvwwvwtqqvvxwwwptpqrqqsrruuttvsvwvvwwwwwxwwwwwv"
)


def _codes() -> dict[tuple[int, int], int]:
    codes, code, length = {}, 0, 0
    for bits, byte in sorted((ord(letter) - 92, at) for at, letter in enumerate(CODE_LENGTHS)):
        code <<= bits - length
        length = bits
        codes[bits, code] = byte
        code += 1
    return codes


CODES = _codes()


def _unhuffman(data: bytes) -> bytes:
    out, code, length = bytearray(), 0, 0
    for byte in data:
        for shift in range(7, -1, -1):
            code, length = code << 1 | byte >> shift & 1, length + 1
            symbol = CODES.get((length, code))
            if symbol is not None:
                out.append(symbol)
                code, length = 0, 0
    return bytes(out)


class Decoder:
    """The state of one direction of a connection."""

    def __init__(self) -> None:
        self._dynamic: list[tuple[str, str]] = []
        self._bytes_max = TABLE_BYTES

    def decode(self, block: bytes) -> list[tuple[str, str]]:
        fields, at = [], 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                fields.append(self._entry(index))
            elif first & 0xE0 == 0x20:
                self._bytes_max, at = _integer(block, at, 5)
                self._evict()
            else:
                index, at = _integer(block, at, 6 if first & 0x40 else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                fields.append((name, value))
                if first & 0x40:
                    self._dynamic.insert(0, (name, value))
                    self._evict()
        return fields

    def _entry(self, index: int) -> tuple[str, str]:
        return (STATIC + self._dynamic)[index - 1]

    def _evict(self) -> None:
        def size() -> int:
            return sum(len(name) + len(value) + ENTRY_BYTES for name, value in self._dynamic)

        while self._dynamic and size() > self._bytes_max:
            self._dynamic.pop()


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value, at = block[at] & most, at + 1
    if value < most:
        return value, at
    shift = 0
    while True:
        byte, at = block[at], at + 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _string(block: bytes, at: int) -> tuple[str, int]:
    coded = block[at] & 0x80
    length, at = _integer(block, at, 7)
    data = block[at : at + length]
    return (_unhuffman(data) if coded else data).decode("latin-1"), at + length


def encode(fields: list[tuple[str, str]]) -> bytes:
    """Encodes fields, each as a literal that no table keeps."""
    out = bytearray()
    for field in fields:
        out.append(0)
        for text in field:
            data = text.encode("latin-1")
            out += _length(len(data)) + data
    return bytes(out)


def _length(value: int) -> bytes:
    if value < 0x7F:
        return bytes([value])
    out, value = bytearray([0x7F]), value - 0x7F
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

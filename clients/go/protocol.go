package esker

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// countMax is the most timestamps of a request.
const countMax = 1 << 16

// Timestamp is a timestamp of a cluster. Timestamps can be compared with ==, and are map keys.
type Timestamp struct {
	Epoch uint64 // nanoseconds of Unix time
	Index uint64 // in the epoch, from 1
}

// FromBytes decodes a timestamp. The order of the bytes is that of timestamps.
func FromBytes(b [16]byte) Timestamp {
	return Timestamp{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Bytes encodes the timestamp.
func (t Timestamp) Bytes() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], t.Epoch)
	binary.BigEndian.PutUint64(b[8:], t.Index)
	return b
}

// Compare returns -1 if t is below u, 0 if they are equal, and 1 if t is above u.
func (t Timestamp) Compare(u Timestamp) int {
	return cmp.Or(cmp.Compare(t.Epoch, u.Epoch), cmp.Compare(t.Index, u.Index))
}

// String returns the bytes in hexadecimal digits.
func (t Timestamp) String() string { return fmt.Sprintf("%016x%016x", t.Epoch, t.Index) }

// Range is Count timestamps of one epoch, with consecutive indexes.
type Range struct {
	First Timestamp
	Count int
}

// At returns timestamp number i, from 0 to Count-1.
func (r Range) At(i int) Timestamp { return Timestamp{r.First.Epoch, r.First.Index + uint64(i)} }

// Last returns the highest timestamp.
func (r Range) Last() Timestamp { return r.At(r.Count - 1) }

// step is what follows from an answer: the timestamps, or another attempt after a wait.
type step struct {
	first  Timestamp
	err    error         // without timestamps; ErrRefused ends the call
	leader string        // to ask next, without a wait
	stays  bool          // the same node is asked next
	wait   time.Duration // that the node asks for, before the usual one
}

// decide returns what follows from the answer to a request for n timestamps.
func decide(n int, list bool, status int, header http.Header, body []byte) step {
	first, ok := decode(body, n, list)
	leader := checked(header.Get("Esker-Leader"), false)
	err := fmt.Errorf("%w: status %d, %.200q", ErrAnswer, status, body)
	switch {
	case status == 200 && ok:
		return step{first: first}
	case status == 409 || (status == 307 && leader != ""):
		return step{err: ErrNotLeader, leader: leader}
	case status == 400:
		return step{err: fmt.Errorf("%w: %w", ErrRefused, err)}
	case status == 503:
		seconds, _ := strconv.ParseUint(header.Get("Retry-After"), 10, 63)
		return step{err: err, stays: true, wait: time.Duration(min(seconds, 1)) * time.Second}
	}
	return step{err: err}
}

// decode returns the first of n timestamps with consecutive indexes.
func decode(body []byte, n int, list bool) (Timestamp, bool) {
	if (list && len(body) != 16*n) || (!list && (len(body) != 24 || binary.BigEndian.Uint64(body[16:]) != uint64(n))) {
		return Timestamp{}, false
	}
	r := Range{FromBytes([16]byte(body)), n}
	for i := 0; list && i < n; i++ {
		if FromBytes([16]byte(body[16*i:])) != r.At(i) {
			return Timestamp{}, false
		}
	}
	return r.First, r.First.Index > 0 && r.Last().Index >= r.First.Index
}

// checked returns addr if it is the host and port of one host, and nothing else; otherwise "".
func checked(addr string, orUnspecified bool) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	host, digits, _ := strings.Cut(addr, ":")
	port, err := strconv.ParseUint(digits, 10, 16)
	isHost := strings.ContainsAny(host, letters) && strings.Trim(host, letters+"0123456789.-_") == "" && err == nil
	if ip, err := netip.ParseAddrPort(addr); err == nil {
		isHost = ip.Addr().Zone() == "" && (orUnspecified || !ip.Addr().IsUnspecified())
		port = uint64(ip.Port())
	}
	if !isHost || port == 0 || len(addr) > 253+len(":65535") {
		return ""
	}
	return addr
}

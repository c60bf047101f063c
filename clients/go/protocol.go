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

const (
	countMax = 1 << 16 // timestamps of a request
	// A timestamp of 64 bits has the millisecond of its epoch above 18 bits of its index.
	u64IndexBits, u64IndexMax, nanosPerMillisecond = 18, 1<<18 - 1, 1_000_000
	// What a request says of the form of its answer. A list has 16 bytes for each timestamp.
	listForm, rangeForm, u64Form = "", "&format=range", "&format=u64-range"
)

// Timestamp is a timestamp of a cluster: an epoch, in nanoseconds of Unix time, and an index in it, from 1.
// Timestamps can be compared with ==, and are map keys.
type Timestamp struct {
	Epoch, Index uint64
}

// FromBytes decodes a timestamp. The order of the bytes is that of timestamps.
func FromBytes(b [16]byte) Timestamp {
	return Timestamp{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Bytes encodes the timestamp.
func (t Timestamp) Bytes() [16]byte {
	return [16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, t.Epoch), t.Index))
}

// FromUint64 decodes a timestamp of 64 bits, which has the first nanosecond of its millisecond as epoch.
// It returns false for a number that is none: its millisecond is after the last epoch, in 2554.
func FromUint64(n uint64) (Timestamp, bool) {
	return Timestamp{n >> u64IndexBits * nanosPerMillisecond, n & u64IndexMax}, n>>u64IndexBits <= ^uint64(0)/nanosPerMillisecond
}

// bits encodes a timestamp whose index has 18 bits at most.
func (t Timestamp) bits() uint64 { return t.Epoch/nanosPerMillisecond<<u64IndexBits + t.Index }

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

// step is what follows from an answer: the timestamps, in the form of the answer, or another attempt: of the
// leader that the node names, without a wait, or after a wait.
type step struct {
	first        Timestamp
	err          error         // without timestamps; ErrRefused ends the call
	stays        bool          // the same node is asked next
	wait         time.Duration // that the node asks for, before the usual one
	form, leader string
}

// isAbove compares the timestamps of answers. Those of different widths compare by the millisecond of the
// epoch, and then by the index.
func (s step) isAbove(other step) bool {
	if (s.form == u64Form) != (other.form == u64Form) {
		s.first.Epoch, other.first.Epoch = s.first.Epoch/nanosPerMillisecond, other.first.Epoch/nanosPerMillisecond
	}
	return s.first.Compare(other.first) > 0
}

// decide returns what follows from the answer to a request for n timestamps.
func decide(n int, form string, status int, header http.Header, body []byte) step {
	first, ok := decode(body, n, form)
	leader := checked(header.Get("Esker-Leader"), false)
	err := fmt.Errorf("%w: status %d, %.200q", ErrAnswer, status, body)
	switch {
	case status == 200 && ok:
		return step{first: first, form: form}
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
func decode(body []byte, n int, form string) (Timestamp, bool) {
	var start [16]byte
	copy(start[:], body)
	r, ok, indexMax, right := Range{FromBytes(start), n}, true, ^uint64(0), start[:]
	if form == u64Form {
		r.First, ok = FromUint64(r.First.Epoch)
		indexMax, right = u64IndexMax, start[:8]
	}
	if form != listForm {
		right = binary.BigEndian.AppendUint64(right, uint64(n))
	}
	for i := 1; form == listForm && i < n; i++ {
		next := r.At(i).Bytes()
		right = append(right, next[:]...)
	}
	first, last := r.First.Index, r.Last().Index
	return r.First, ok && string(body) == string(right) && 0 < first && first <= last && last <= indexMax
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

package esker

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// vectors are those of the guide "Writing a client".
type vectors struct {
	Timestamps    []struct{ Epoch, Index, Bytes string }
	Answers       []vector
	U64Timestamps []struct{ Milliseconds, Index, Number, Bytes string } `json:"u64_timestamps"`
	U64Answers    []vector                                              `json:"u64_answers"`
}

type vector struct {
	N       int
	Status  int
	Headers map[string]string
	Hex     *string `json:"body_hex"`
	Body    string
	Then    string
	First   string
	Last    string
	Leader  string
	Seconds int
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	text, err := os.ReadFile("../../docs/src/client-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTimestampsAreEncodedAsTheGuideHasIt(t *testing.T) {
	v := readVectors(t)
	if len(v.Timestamps) < 10 {
		t.Fatalf("%d vectors", len(v.Timestamps))
	}
	var last Timestamp
	for i, vector := range v.Timestamps {
		bytes, err := hex.DecodeString(vector.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		got := FromBytes([16]byte(bytes))
		want := Timestamp{number(t, vector.Epoch), number(t, vector.Index)}
		if got != want || want.Bytes() != [16]byte(bytes) || got.String() != vector.Bytes {
			t.Errorf("%v is %v", vector, got)
		}
		if i > 0 && (last.Compare(got) != -1 || got.Compare(last) != 1 || got.Compare(got) != 0) {
			t.Errorf("%v is not above %v", got, last)
		}
		last = got
	}
}

func TestTimestampsOf64BitsAreEncodedAsTheGuideHasIt(t *testing.T) {
	v := readVectors(t)
	if len(v.U64Timestamps) < 10 {
		t.Fatalf("%d vectors", len(v.U64Timestamps))
	}
	last := step{form: u64Form}
	for i, vector := range v.U64Timestamps {
		n := number(t, vector.Number)
		got, ok := FromUint64(n)
		want := Timestamp{number(t, vector.Milliseconds) * 1_000_000, number(t, vector.Index)}
		if !ok || got != want || want.bits() != n || fmt.Sprintf("%016x", n) != vector.Bytes {
			t.Errorf("%v is %v", vector, got)
		}
		now := step{first: got, form: u64Form}
		if i > 0 && (last.isAbove(now) || !now.isAbove(last) || now.isAbove(now)) {
			t.Errorf("%v is not above %v", got, last)
		}
		last = now
	}
	for _, wrong := range []uint64{(1<<64/1_000_000 + 1) << 18, 1 << 63, 1<<64 - 1} {
		if got, ok := FromUint64(wrong); ok {
			t.Errorf("%d is %v", wrong, got)
		}
	}
}

// A timestamp of 64 bits has the millisecond of its epoch alone.
func TestTimestampsOfBothWidthsAreInOneOrder(t *testing.T) {
	wide := func(epoch, index uint64) step { return step{first: Timestamp{epoch, index}, form: rangeForm} }
	narrow := func(epoch, index uint64) step { return step{first: Timestamp{epoch, index}, form: u64Form} }
	for _, pair := range [][2]step{
		{wide(7_999_999, 5), narrow(7_000_000, 6)},
		{narrow(7_000_000, 5), wide(7_999_999, 6)},
		{wide(6_999_999, 9), narrow(7_000_000, 1)},
		{narrow(7_000_000, 9), wide(8_000_000, 1)},
		{wide(7_000_001, 9), wide(7_000_002, 1)},
	} {
		if pair[0].isAbove(pair[1]) || !pair[1].isAbove(pair[0]) {
			t.Errorf("%v is not above %v", pair[1], pair[0])
		}
	}
	if wide(7_999_999, 5).isAbove(narrow(7_000_000, 5)) || narrow(7_000_000, 5).isAbove(wide(7_999_999, 5)) {
		t.Error("a timestamp is above itself")
	}
}

func TestAnswersAreHandledAsTheGuideHasIt(t *testing.T) {
	v := readVectors(t)
	if len(v.Answers) < 30 || len(v.U64Answers) < 10 {
		t.Fatalf("%d and %d vectors", len(v.Answers), len(v.U64Answers))
	}
	for _, vector := range v.Answers {
		checkAnswer(t, vector, rangeForm, Timestamp.String)
	}
	for _, vector := range v.U64Answers {
		checkAnswer(t, vector, u64Form, func(t Timestamp) string { return strconv.FormatUint(t.bits(), 10) })
	}
}

func checkAnswer(t *testing.T, vector vector, form string, text func(Timestamp) string) {
	t.Helper()
	header, body := http.Header{}, []byte(vector.Body)
	for name, value := range vector.Headers {
		header.Set(name, value)
	}
	if vector.Hex != nil {
		body, _ = hex.DecodeString(*vector.Hex)
	}
	got := decide(vector.N, form, vector.Status, header, body)
	then := "ask another node"
	switch {
	case got.err == nil:
		then = "timestamps"
		last := Range{got.first, vector.N}.Last()
		if text(got.first) != vector.First || text(last) != vector.Last {
			t.Errorf("%+v: %v to %v", vector, got.first, last)
		}
	case got.leader != "":
		then = "ask the leader"
		if got.leader != vector.Leader {
			t.Errorf("%+v: %s", vector, got.leader)
		}
	case got.stays:
		then = "ask again later"
		if got.wait != time.Duration(vector.Seconds)*time.Second {
			t.Errorf("%+v: %s", vector, got.wait)
		}
	case errors.Is(got.err, ErrRefused):
		then = "fail"
	}
	if then != vector.Then {
		t.Errorf("%+v: %s: %+v", vector, then, got)
	}
}

func TestListsHaveConsecutiveTimestamps(t *testing.T) {
	list := func(all ...Timestamp) (body []byte) {
		for _, each := range all {
			b := each.Bytes()
			body = append(body, b[:]...)
		}
		return body
	}
	const most = 1<<64 - 1
	right := list(Timestamp{7, 1}, Timestamp{7, 2}, Timestamp{7, 3})
	if first, ok := decode(right, 3, listForm); !ok || first != (Timestamp{7, 1}) {
		t.Errorf("%v, %t", first, ok)
	}
	for _, wrong := range [][]byte{
		nil,
		right[:47],
		append(right[:48:48], 0),
		list(Timestamp{7, 1}, Timestamp{7, 2}),
		list(Timestamp{7, 1}, Timestamp{7, 3}, Timestamp{7, 2}),
		list(Timestamp{7, 1}, Timestamp{7, 2}, Timestamp{8, 3}),
		list(Timestamp{7, 0}, Timestamp{7, 1}, Timestamp{7, 2}),
		list(Timestamp{7, most - 1}, Timestamp{7, most}, Timestamp{7, 0}),
	} {
		if first, ok := decode(wrong, 3, listForm); ok {
			t.Errorf("%x: %v", wrong, first)
		}
	}
}

func TestAnAddressIsThatOfOneHost(t *testing.T) {
	for _, right := range []string{"127.0.0.1:8080", "node-1.example:1", "[::1]:65535", "esker_1:80"} {
		if checked(right, false) != right || checked(right, true) != right {
			t.Errorf("%s is an address", right)
		}
	}
	for _, all := range []string{"0.0.0.0:8080", "[::]:8080"} {
		if checked(all, true) == "" || checked(all, false) != "" {
			t.Errorf("%s is that of an endpoint alone", all)
		}
	}
	for _, wrong := range []string{
		"", ":", ":80", "a", "a:", "a:0", "a:+80", "a:-1", "a:65536", "a b:80", "::1:80", "[::1:80",
		"[::1]", "[a]:80", "[1.2.3.4]:80", "[fe80::1%eth0]:80", "256.1.1.1:80", "1.2.3:80", "a@b:80", "a/b:80",
		"a:80/b", "a:80:80", "\u0100bad:1", "a\r\nb:80", "http://a:80", "-.:80", strings.Repeat("a", 260) + ":80",
	} {
		if checked(wrong, true) != "" || checked(wrong, false) != "" {
			t.Errorf("%q is no address", wrong)
		}
	}
}

func TestTheTextOfAnErrorIsShortAndOnOneLine(t *testing.T) {
	body := []byte("a\nb\xff" + strings.Repeat("x", 9999))
	err := decide(1, rangeForm, 418, http.Header{}, body).err
	if text := err.Error(); len(text) > 300 || strings.Contains(text, "\n") || !strings.Contains(text, "418") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

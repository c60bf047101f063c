package esker

import (
	"context"
	"errors"
	"testing"
)

// millisecond is the first nanosecond of a millisecond, and bits the number of its timestamps.
const millisecond = 1_700_000_000_000 * nanosPerMillisecond

func bits(index uint64) uint64 { return Timestamp{millisecond, index}.bits() }

func TestNumbersAreThoseOfTheAnswer(t *testing.T) {
	node := issuing(t, new(issuer))
	client := open(t, nil, node)
	node.answers(func(n int) reply { return ranged64(bits(5), n) })
	if got, err := client.TimestampU64(context.Background()); got != bits(5) || err != nil {
		t.Error(got, err)
	}
	last := bits(u64IndexMax)
	node.answers(func(n int) reply { return ranged64(last-2, n) })
	if got, err := client.TimestampsU64(context.Background(), 3); got != last-2 || err != nil {
		t.Error(got, err)
	}
	expect(t, node.counts(), []int{1, 3})
	expect(t, node.forms(), []string{"format=u64-range", "format=u64-range"})
	for _, n := range []int{0, countMax + 1} {
		if _, err := client.TimestampsU64(context.Background(), n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestMalformedAnswersOf64BitsAreAskedForAgain(t *testing.T) {
	right := ranged64(bits(1), 1).body
	wide := ranged(Range{Timestamp{millisecond, 7}, 1}).body
	for _, wrong := range []reply{
		{status: 200}, {status: 200, body: right[:8]}, {status: 200, body: right[:15]},
		{status: 200, body: append(right[:16:16], 0)}, {status: 200, body: wide}, {status: 200, body: wide[:16]},
		ranged64(bits(1), 2), ranged64(bits(0), 1), ranged64(1<<64-1, 1),
	} {
		node := scripted(t, new(issuer), wrong)
		if got, err := open(t, nil, node).TimestampU64(context.Background()); got != 1 || err != nil {
			t.Errorf("%x: %d, %v", wrong.body, got, err)
		}
		expect(t, node.counts(), []int{1, 1})
		node.kill()
	}
}

// Callers of both widths that come in turns share two requests, one of each width.
func TestCallersOfBothWidthsShareARequestOfEach(t *testing.T) {
	node, release := held(t, new(issuer))
	client := open(t, nil, node)
	var wide, narrow []<-chan Range
	for want := 1; want <= 2; want++ {
		wide = append(wide, call(client, 1))
		eventually(t, "a request", func() bool { return len(node.counts()) == want })
	}
	for range 20 {
		wide = append(wide, call(client, 2))
		got := make(chan Range, 1)
		narrow = append(narrow, got)
		go func() {
			first, _ := client.TimestampsU64(context.Background(), 3)
			got <- Range{Timestamp{7, first}, 3}
		}()
	}
	eventually(t, "callers that wait", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return client.waiting == 40
	})
	release()
	seen := map[Timestamp]bool{}
	for _, each := range append(wide, narrow...) {
		r := <-each
		for at := range r.Count {
			seen[r.At(at)] = true
		}
	}
	expect(t, len(seen), 2+20*2+20*3)
	expect(t, len(node.counts()), 4)
	sums := map[string]int{}
	for at, form := range node.forms() {
		sums[form] += node.counts()[at]
	}
	expect(t, sums, map[string]int{"format=range": 2 + 20*2, "format=u64-range": 20 * 3})
}

// A timestamp is above those of both widths that were received before.
func TestAnswersOfBothWidthsAreInOneOrder(t *testing.T) {
	node := issuing(t, new(issuer))
	client := open(t, nil, node)
	answers := func(index uint64) { // of an epoch that does not begin with its millisecond
		node.answers(func(n int) reply { return ranged(Range{Timestamp{millisecond + 999_999, index}, n}) })
	}
	isLower := func() {
		t.Helper()
		_, wide := client.Timestamp(context.Background())
		_, narrow := client.TimestampU64(context.Background())
		if !errors.Is(wide, ErrNotMonotonic) || !errors.Is(narrow, ErrNotMonotonic) {
			t.Errorf("%v, %v", wide, narrow)
		}
	}
	answers(5)
	if _, err := client.Timestamps(context.Background(), 5); err != nil {
		t.Fatal(err)
	}
	for _, lower := range []uint64{1, 9} {
		answers(lower)
		isLower()
	}
	answers(10)
	if got, err := client.TimestampU64(context.Background()); got != bits(10) || err != nil {
		t.Error(got, err)
	}
	for _, lower := range []uint64{1, 10} {
		answers(lower)
		isLower()
	}
	answers(11)
	expect(t, one(t, client), Timestamp{millisecond + 999_999, 11})
}

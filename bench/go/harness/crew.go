package harness

import (
	"sync"
	"time"
)

// caller is one goroutine that waits for each of its records.
type caller struct {
	payload *payload
	append  func([]byte) error
	count   uint64
	bytes   uint64
	times   histogram
}

// slice is what was done in one part of a run.
type slice struct {
	ops, bytes uint64
	took       time.Duration
}

// work lets every caller run until its time is over or it has its count.
func work(callers []*caller, seconds float64, count uint64) (slice, error) {
	before := total(callers)
	var ready, finished sync.WaitGroup
	start := make(chan struct{})
	var begin time.Time
	errs := make([]error, len(callers))
	for i, c := range callers {
		ready.Add(1)
		finished.Go(func() {
			ready.Done()
			<-start
			errs[i] = c.run(begin, seconds, count)
		})
	}
	ready.Wait()
	begin = time.Now()
	close(start)
	finished.Wait()
	took := time.Since(begin)
	for _, err := range errs {
		if err != nil {
			return slice{}, err
		}
	}
	after := total(callers)
	return slice{after.ops - before.ops, after.bytes - before.bytes, took}, nil
}

func (c *caller) run(begin time.Time, seconds float64, count uint64) error {
	deadline := begin.Add(time.Duration(seconds * 1e9))
	last := time.Now()
	for done := uint64(0); count == 0 || done < count; done++ {
		record := c.payload.record(c.count)
		if err := c.append(record); err != nil {
			return err
		}
		c.count++
		c.bytes += uint64(len(record))
		now := time.Now()
		c.times.add(now.Sub(last))
		last = now
		if count == 0 && now.After(deadline) {
			break
		}
	}
	return nil
}

func total(callers []*caller) (sum slice) {
	for _, c := range callers {
		sum.ops += c.count
		sum.bytes += c.bytes
	}
	return sum
}

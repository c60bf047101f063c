package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"
)

// Log is a peer's log. Append returns when the record is durable, and may be called by many at once.
type Log interface {
	Append(record []byte) error
	// Pipeline appends until there are no more records; all of them are durable when it returns.
	Pipeline(records *Records) error
	Close() error
}

// BatchLog takes many records as one append, durable when it returns.
type BatchLog interface {
	AppendBatch(records [][]byte) error
}

// TailLog finds a record by its number while others are appended; the first is 1.
type TailLog interface {
	Read(number uint64) ([]byte, error)
}

// Peer is how a log is opened, and how what it wrote is read back.
type Peer struct {
	Module string
	Note   string
	// Pipelining says how the peer pipelines, where it has no way of its own.
	Pipelining string
	Open       func(dir string) (Log, error)
	ReadAll    func(dir string, see func([]byte) error) error
	// OpenSlots opens a store of slots, where the peer is one.
	OpenSlots func(dir string) (Slots, error)
}

type jobResult struct {
	Ops          uint64  `json:"ops"`
	Bytes        uint64  `json:"bytes"`
	Seconds      float64 `json:"seconds"`
	P50Us        float64 `json:"p50_us"`
	P99Us        float64 `json:"p99_us"`
	Verified     bool    `json:"verified"`
	Durable      bool    `json:"durable"`
	Version      string  `json:"version"`
	Note         string  `json:"note"`
	ReaderMBPerS float64 `json:"reader_mb_per_s,omitempty"`
}

const (
	warmUpPart = 0.2
	warmUpMost = 0.3
)

// Main does the job that the flags describe, and prints one line of JSON.
func Main(peer Peer) {
	job := parseJob()
	if job.Shape == "leave" {
		leave(peer, job)
	}
	result, err := run(peer, job)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(peer Peer, job Job) (jobResult, error) {
	result := jobResult{Durable: true, Version: version(peer.Module), Note: peer.Note}
	if job.onSlots() {
		err := runOnSlots(peer, job, &result)
		return result, err
	}
	dir := filepath.Join(job.Dir, "log")
	log, err := peer.Open(dir)
	if err != nil {
		return jobResult{}, fmt.Errorf("open: %w", err)
	}
	if job.Batched() {
		result.Note += "; one group committer in front of it gathers what waits into a batch"
	}
	var counts []uint64
	switch job.Shape {
	case "callers":
		counts, err = runCallers(log, job, &result)
	case "pipelined":
		if peer.Pipelining != "" {
			result.Note += "; " + peer.Pipelining
		}
		counts, err = runPipelined(log, job, &result)
	case "stream":
		counts, err = runStream(log, job, &result)
	case "batches":
		counts, err = runBatches(log, job, &result)
	default:
		err = fmt.Errorf("no shape %q", job.Shape)
	}
	if err != nil {
		return jobResult{}, err
	}
	if err := log.Close(); err != nil {
		return jobResult{}, fmt.Errorf("close: %w", err)
	}
	check := newCheck(job, 1)
	if err := peer.ReadAll(dir, check.see); err != nil {
		return jobResult{}, fmt.Errorf("read back: %w", err)
	}
	if err := check.done(counts); err != nil {
		return jobResult{}, err
	}
	result.Verified = true
	return result, nil
}

func (r *jobResult) measured(s slice, times *histogram) {
	r.Ops, r.Bytes, r.Seconds = s.ops, s.bytes, s.took.Seconds()
	r.P50Us, r.P99Us = times.quantileUs(0.5), times.quantileUs(0.99)
}

func runCallers(log Log, job Job, result *jobResult) ([]uint64, error) {
	callers := make([]*caller, job.Writers)
	for writer := range callers {
		callers[writer] = &caller{payload: newPayload(job, writer), append: log.Append}
	}
	if job.Batched() {
		batches, can := log.(BatchLog)
		if !can {
			return nil, fmt.Errorf("%s takes no batches", job.System)
		}
		b := newBatcher(batches)
		defer b.close()
		for _, c := range callers {
			durable := make(chan error, 1)
			c.append = func(record []byte) error { return b.append(record, durable) }
		}
	}
	warmUp := uint64(0)
	if job.Count > 0 {
		warmUp = max(job.Count/10, 1)
	}
	if _, err := work(callers, min(job.Seconds*warmUpPart, warmUpMost), warmUp); err != nil {
		return nil, err
	}
	for _, c := range callers {
		c.times = histogram{}
	}
	done, err := work(callers, job.Seconds, job.Count)
	if err != nil {
		return nil, err
	}
	var times histogram
	counts := make([]uint64, len(callers))
	for writer, c := range callers {
		times.merge(&c.times)
		counts[writer] = c.count
	}
	result.measured(done, &times)
	return counts, nil
}

func runPipelined(log Log, job Job, result *jobResult) ([]uint64, error) {
	payload := newPayload(job, 0)
	count := uint64(0)
	one := func(records uint64) (*Records, error) {
		r := &Records{payload: payload, count: count, end: count + records}
		begin := time.Now()
		err := log.Pipeline(r)
		r.done.took = time.Since(begin)
		count = r.count
		return r, err
	}
	if _, err := one(max(job.Count/10, 1)); err != nil {
		return nil, err
	}
	r, err := one(job.Count)
	if err != nil {
		return nil, err
	}
	result.measured(r.done, &r.times)
	return []uint64{count}, nil
}

func runStream(log Log, job Job, result *jobResult) ([]uint64, error) {
	batches, can := log.(BatchLog)
	tail, has := log.(TailLog)
	if !can || !has {
		return nil, fmt.Errorf("%s has no batches or no reader at the tip", job.System)
	}
	var mu sync.Mutex
	grown := sync.NewCond(&mu)
	durable := uint64(0)
	begin := time.Now()
	read := make(chan error, 1)
	var readTook time.Duration
	go func() {
		check := newCheck(job, 64)
		for number := uint64(1); number <= job.Count; number++ {
			mu.Lock()
			for durable < number {
				grown.Wait()
			}
			mu.Unlock()
			record, err := tail.Read(number)
			if err == nil {
				err = check.see(record)
			}
			if err != nil {
				read <- fmt.Errorf("the reader at the tip: %w", err)
				return
			}
		}
		readTook = time.Since(begin)
		read <- nil
	}()
	payloads := make([]*payload, job.Batch)
	for i := range payloads {
		payloads[i] = newPayload(job, 0)
	}
	var times histogram
	var done slice
	records := make([][]byte, 0, job.Batch)
	last := begin
	for done.ops < job.Count {
		records = records[:0]
		for i := range min(uint64(job.Batch), job.Count-done.ops) {
			record := payloads[i].record(done.ops + i)
			done.bytes += uint64(len(record))
			records = append(records, record)
		}
		if err := batches.AppendBatch(records); err != nil {
			return nil, err
		}
		done.ops += uint64(len(records))
		now := time.Now()
		times.add(now.Sub(last))
		last = now
		mu.Lock()
		durable = done.ops
		mu.Unlock()
		grown.Signal()
	}
	done.took = time.Since(begin)
	if err := <-read; err != nil {
		return nil, err
	}
	result.measured(done, &times)
	result.ReaderMBPerS = float64(done.bytes) / 1e6 / readTook.Seconds()
	return []uint64{done.ops}, nil
}

func runBatches(log Log, job Job, result *jobResult) ([]uint64, error) {
	batches, can := log.(BatchLog)
	if !can {
		return nil, fmt.Errorf("%s takes no batches", job.System)
	}
	payloads := make([]*payload, job.Batch)
	for i := range payloads {
		payloads[i] = newPayload(job, 0)
	}
	records := make([][]byte, job.Batch)
	count := uint64(0)
	work := func(seconds float64) (done slice, times *histogram, err error) {
		times = new(histogram)
		begin := time.Now()
		for last := begin; done.took.Seconds() < seconds; {
			for i := range records {
				records[i] = payloads[i].record(count)
				done.bytes += uint64(len(records[i]))
				count++
			}
			if err = batches.AppendBatch(records); err != nil {
				return
			}
			done.ops += uint64(job.Batch)
			now := time.Now()
			times.add(now.Sub(last))
			last = now
			done.took = now.Sub(begin)
		}
		return
	}
	if _, _, err := work(min(job.Seconds*warmUpPart, warmUpMost)); err != nil {
		return nil, err
	}
	done, times, err := work(job.Seconds)
	result.measured(done, times)
	return []uint64{count}, err
}

func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "unknown"
}

package harness

import "sync"

// batcher is a group committer for a log that takes batches: whatever waits when a batch is durable
// becomes the next one.
type batcher struct {
	log     BatchLog
	mu      sync.Mutex
	filled  sync.Cond
	waiting []waiter
	closed  bool
	done    chan struct{}
}

type waiter struct {
	record  []byte
	durable chan error
}

func newBatcher(log BatchLog) *batcher {
	b := &batcher{log: log, done: make(chan struct{})}
	b.filled.L = &b.mu
	go b.commit()
	return b
}

func (b *batcher) commit() {
	defer close(b.done)
	var taken []waiter
	var records [][]byte
	for {
		b.mu.Lock()
		for len(b.waiting) == 0 && !b.closed {
			b.filled.Wait()
		}
		if len(b.waiting) == 0 {
			b.mu.Unlock()
			return
		}
		taken, b.waiting = b.waiting, taken[:0]
		b.mu.Unlock()
		records = records[:0]
		for _, w := range taken {
			records = append(records, w.record)
		}
		err := b.log.AppendBatch(records)
		for _, w := range taken {
			w.durable <- err
		}
	}
}

func (b *batcher) append(record []byte, durable chan error) error {
	b.mu.Lock()
	b.waiting = append(b.waiting, waiter{record, durable})
	b.mu.Unlock()
	b.filled.Signal()
	return <-durable
}

func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.filled.Signal()
	<-b.done
}

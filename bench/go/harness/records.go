package harness

import "time"

// Two looks at the clock cost as much as an append that does not wait.
const timedEvery = 16

// Records are what one pipelining writer appends.
type Records struct {
	payload    *payload
	count, end uint64
	done       slice
	times      histogram
	asked      time.Time
}

// Next makes the next record, good until the next call; nil after the last.
func (r *Records) Next() []byte {
	if !r.asked.IsZero() {
		r.times.add(time.Since(r.asked))
		r.asked = time.Time{}
	}
	if r.count == r.end {
		return nil
	}
	record := r.payload.record(r.count)
	r.count++
	r.done.ops++
	r.done.bytes += uint64(len(record))
	if r.done.ops%timedEvery == 0 {
		r.asked = time.Now()
	}
	return record
}

// AtLast says whether the record that Next made is the last.
func (r *Records) AtLast() bool { return r.count == r.end }

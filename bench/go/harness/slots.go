package harness

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Slots is a store of slots with values. What a call wrote is seen by views made after it; nothing of it
// has to be durable. It may be called by many at once.
type Slots interface {
	// Put writes a committed value.
	Put(slot uint64, value []byte) error
	PutBatch(slots []uint64, values [][]byte) error
	// Accept writes a value that is not committed.
	Accept(slot uint64, value []byte) error
	View() View
	// Sync makes everything durable.
	Sync() error
	Close() error
}

// View reads what was written before it was made. Values are good within the call only.
type View interface {
	Get(slot uint64, see func(value []byte) error) error
	// Committed and Accepted go through the slots in order.
	Committed(see func(slot uint64, value []byte) error) error
	Accepted(see func(slot uint64, value []byte) error) error
	Close()
}

// Within the timed part, every byte of every so many-th value is compared, and slot and length of the
// others.
const fullInTime = 64

// Batches in which slots are written before the timed part.
const ahead = 1000

func (j Job) onSlots() bool {
	switch j.Shape {
	case "slots", "recovery", "kill", "scan":
		return true
	}
	return false
}

func runOnSlots(peer Peer, job Job, result *jobResult) error {
	if peer.OpenSlots == nil {
		return fmt.Errorf("%s has no slots", job.System)
	}
	var err error
	switch job.Shape {
	case "slots":
		err = runSlots(peer, job, result)
		result.Durable = false
	case "scan":
		err = runScan(peer, job, result)
		result.Durable = false
	default:
		err = runRecovery(peer, job, result)
	}
	result.Verified = err == nil
	return err
}

// values compares the values of slots with the expected ones.
type values struct {
	payload *payload
	full    uint64
	seen    uint64
}

func newValues(job Job, full uint64) *values { return &values{newPayload(job, 0), full, 0} }

func (v *values) see(slot uint64, value []byte) error {
	v.seen++
	if len(value) != v.payload.most || binary.LittleEndian.Uint64(value[4:]) != slot ||
		v.seen%v.full == 0 && !bytes.Equal(value, v.payload.record(slot)) {
		return fmt.Errorf("slot %d has not the value that was written", slot)
	}
	return nil
}

// allOf reads every committed slot in order, and compares it whole.
func allOf(slots Slots, job Job, full, count uint64) error {
	check := newValues(job, full)
	view := slots.View()
	defer view.Close()
	err := view.Committed(func(slot uint64, value []byte) error {
		if slot != check.seen {
			return fmt.Errorf("slot %d was read back in the place of %d", slot, check.seen)
		}
		return check.see(slot, value)
	})
	if err == nil && check.seen != count {
		err = fmt.Errorf("%d of %d slots were read back", check.seen, count)
	}
	return err
}

// putBatches writes committed slots in order.
func putBatches(slots Slots, job Job, next *atomic.Uint64, count uint64, size int, each func()) error {
	payloads := make([]*payload, size)
	for i := range payloads {
		payloads[i] = newPayload(job, 0)
	}
	for end := next.Load() + count; next.Load() < end; {
		var numbers []uint64
		var records [][]byte
		for i := range min(uint64(size), end-next.Load()) {
			slot := next.Load() + i
			numbers = append(numbers, slot)
			records = append(records, payloads[i].record(slot))
		}
		if err := slots.PutBatch(numbers, records); err != nil {
			return err
		}
		next.Add(uint64(len(numbers)))
		each()
	}
	return nil
}

// oneByOne is what one caller does: count operations, reads and writes as planned.
type oneByOne struct {
	job     Job
	slots   Slots
	next    *atomic.Uint64
	order   []uint64
	base    uint64
	plan    plan
	payload *payload
	check   *values
	times   histogram
}

func (o *oneByOne) run(count uint64) (err error) {
	var view View
	defer func() {
		if view != nil {
			view.Close()
		}
	}()
	for number := range count {
		timed := number%timedEvery == 0
		var begin time.Time
		if timed {
			begin = time.Now()
		}
		if o.plan.isRead(number) {
			if view == nil {
				view = o.slots.View()
			}
			slot := o.plan.pick(number, o.next.Load())
			err = view.Get(slot, func(value []byte) error { return o.check.see(slot, value) })
		} else {
			if view != nil {
				view.Close()
				view = nil
			}
			err = o.write(number)
		}
		if err != nil {
			return err
		}
		if timed {
			o.times.add(time.Since(begin))
		}
	}
	return nil
}

func (o *oneByOne) write(number uint64) error {
	var slot uint64
	switch {
	case o.order != nil:
		slot = o.base + o.order[number]
	case o.job.Writers == 1:
		slot = o.next.Load()
	default:
		slot = o.next.Add(1) - 1
		return o.slots.Put(slot, o.payload.record(slot))
	}
	err := o.slots.Put(slot, o.payload.record(slot))
	o.next.Add(1)
	return err
}

func runSlots(peer Peer, job Job, result *jobResult) error {
	dir := filepath.Join(job.Dir, "log")
	slots, err := peer.OpenSlots(dir)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	next := new(atomic.Uint64)
	done, times, err := timeSlots(slots, job, next)
	if err := errors.Join(err, slots.Close()); err != nil {
		return err
	}
	result.measured(done, times)
	again, err := peer.OpenSlots(dir)
	if err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	return errors.Join(allOf(again, job, 1, next.Load()), again.Close())
}

func timeSlots(slots Slots, job Job, next *atomic.Uint64) (slice, *histogram, error) {
	times := new(histogram)
	// What is read has to be there; what is only written is warmed up.
	before := job.Count / 10
	if job.Reads > 0 {
		before = job.Count / 2
	}
	if err := putBatches(slots, job, next, before, ahead, func() {}); err != nil {
		return slice{}, nil, err
	}
	ops := job.Count * uint64(job.Writers)
	result := slice{ops: ops, bytes: ops * uint64(job.Most)}
	if job.Batch > 1 {
		begin := time.Now()
		last := begin
		err := putBatches(slots, job, next, ops, job.Batch, func() {
			now := time.Now()
			times.add(now.Sub(last))
			last = now
		})
		result.took = time.Since(begin)
		return result, times, err
	}
	callers := make([]*oneByOne, job.Writers)
	for i := range callers {
		callers[i] = &oneByOne{job: job, slots: slots, next: next, base: before, plan: newPlan(job),
			payload: newPayload(job, 0), check: newValues(job, fullInTime)}
		if job.Random {
			callers[i].order = callers[i].plan.shuffled(job.Count)
		}
	}
	var finished sync.WaitGroup
	errs := make([]error, len(callers))
	begin := time.Now()
	for i, caller := range callers {
		finished.Go(func() { errs[i] = caller.run(job.Count) })
	}
	finished.Wait()
	result.took = time.Since(begin)
	for _, caller := range callers {
		times.merge(&caller.times)
	}
	return result, times, errors.Join(errs...)
}

// runScan has every other slot committed, and finds the others.
func runScan(peer Peer, job Job, result *jobResult) error {
	slots, err := peer.OpenSlots(filepath.Join(job.Dir, "log"))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	payload := newPayload(job, 0)
	for _, step := range []uint64{1, 2} {
		write := slots.Accept
		if step == 2 {
			write = slots.Put
		}
		for slot := uint64(0); slot < uint64(job.Batch); slot += step {
			if err := write(slot, payload.record(slot)); err != nil {
				return err
			}
		}
	}
	scan := func(full uint64) error {
		check := newValues(job, full)
		view := slots.View()
		defer view.Close()
		err := view.Accepted(func(slot uint64, value []byte) error {
			if slot != 2*check.seen+1 {
				return fmt.Errorf("slot %d was found in the place of %d", slot, 2*check.seen+1)
			}
			return check.see(slot, value)
		})
		if err == nil && check.seen != uint64(job.Batch)/2 {
			err = fmt.Errorf("%d slots were found", check.seen)
		}
		return err
	}
	if err := scan(1); err != nil {
		return err
	}
	var times histogram
	begin := time.Now()
	last := begin
	for range job.Count {
		if err := scan(fullInTime); err != nil {
			return err
		}
		now := time.Now()
		times.add(now.Sub(last))
		last = now
	}
	found := job.Count * uint64(job.Batch) / 2
	result.measured(slice{found, found * uint64(job.Most), last.Sub(begin)}, &times)
	return errors.Join(scan(1), slots.Close())
}

package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// runRecovery times opening until every slot was read. The store was closed before, or left by a process
// that ended without closing it.
func runRecovery(peer Peer, job Job, result *jobResult) error {
	var times histogram
	done := slice{}
	for round := range job.Count {
		one := job
		one.Dir = filepath.Join(job.Dir, fmt.Sprint(round))
		if err := build(peer, one); err != nil {
			return fmt.Errorf("build: %w", err)
		}
		begin := time.Now()
		slots, err := peer.OpenSlots(filepath.Join(one.Dir, "log"))
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		err = allOf(slots, job, fullInTime, uint64(job.Batch))
		took := time.Since(begin)
		err = errors.Join(err, allOf(slots, job, 1, uint64(job.Batch)), slots.Close(), os.RemoveAll(one.Dir))
		if err != nil {
			return err
		}
		times.add(took)
		done.took += took
		done.ops += uint64(job.Batch)
	}
	done.bytes = done.ops * uint64(job.Most)
	result.measured(done, &times)
	return nil
}

func build(peer Peer, job Job) error {
	if job.Shape == "kill" {
		own, err := os.Executable()
		if err != nil {
			return err
		}
		job.Shape = "leave"
		return exec.Command(own, job.flags()...).Run()
	}
	slots, err := filled(peer, job)
	if err != nil {
		return err
	}
	return slots.Close()
}

func filled(peer Peer, job Job) (Slots, error) {
	if err := os.MkdirAll(job.Dir, 0o755); err != nil {
		return nil, err
	}
	slots, err := peer.OpenSlots(filepath.Join(job.Dir, "log"))
	if err != nil {
		return nil, err
	}
	err = putBatches(slots, job, new(atomic.Uint64), uint64(job.Batch), ahead, func() {})
	return slots, errors.Join(err, slots.Sync())
}

// leave fills a store and ends the process without closing the store, after everything is durable.
func leave(peer Peer, job Job) {
	if _, err := filled(peer, job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

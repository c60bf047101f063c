// Runs the work on github.com/hashicorp/raft-wal.
package main

import (
	"errors"
	"os"
	"sync"

	"github.com/esker-log/esker/bench/go/harness"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
)

func main() {
	harness.Main(harness.Peer{
		Module:     "github.com/hashicorp/raft-wal",
		Note:       "a mutex around it gives the numbers; default options",
		Pipelining: "it always syncs, so it gets batches of 2,048, each with a sync",
		Open:       func(dir string) (harness.Log, error) { return open(dir) },
		ReadAll:    readAll,
	})
}

const batch = 2048

type log struct {
	mu   sync.Mutex
	wal  *wal.WAL
	meta *metadb.BoltMetaDB
	next uint64
	logs []*raft.Log
}

func open(dir string) (*log, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Its Close leaves the metadata open and locked, so that no process could open it again.
	meta := &metadb.BoltMetaDB{}
	l, err := wal.Open(dir, wal.WithLogger(hclog.NewNullLogger()), wal.WithMetaStore(meta))
	return &log{wal: l, meta: meta, next: 1}, err
}

func (l *log) Append(record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(0, record)
	return l.store(1)
}

func (l *log) AppendBatch(records [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, record := range records {
		l.add(i, record)
	}
	return l.store(len(records))
}

func (l *log) Pipeline(records *harness.Records) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	copies := make([][]byte, batch)
	n := 0
	for record := records.Next(); record != nil; record = records.Next() {
		copies[n] = append(copies[n][:0], record...)
		l.add(n, copies[n])
		if n++; n == batch {
			if err := l.store(n); err != nil {
				return err
			}
			n = 0
		}
	}
	return l.store(n)
}

func (l *log) add(i int, record []byte) {
	if i == len(l.logs) {
		l.logs = append(l.logs, new(raft.Log))
	}
	l.logs[i].Index = l.next
	l.logs[i].Term = 1
	l.logs[i].Data = record
	l.next++
}

func (l *log) store(n int) error { return l.wal.StoreLogs(l.logs[:n]) }

func (l *log) Read(number uint64) ([]byte, error) {
	var entry raft.Log
	err := l.wal.GetLog(number, &entry)
	return entry.Data, err
}

func (l *log) Close() error { return errors.Join(l.wal.Close(), l.meta.Close()) }

func readAll(dir string, see func([]byte) error) error {
	l, err := open(dir)
	if err != nil {
		return err
	}
	last, err := l.wal.LastIndex()
	if err != nil {
		return err
	}
	for number := uint64(1); number <= last; number++ {
		record, err := l.Read(number)
		if err == nil {
			err = see(record)
		}
		if err != nil {
			return err
		}
	}
	return l.Close()
}

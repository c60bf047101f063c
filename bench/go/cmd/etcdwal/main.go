// Runs the work on the write-ahead log of go.etcd.io/etcd/server.
package main

import (
	"sync"

	"github.com/esker-log/esker/bench/go/harness"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

func main() {
	harness.Main(harness.Peer{
		Module:     "go.etcd.io/etcd/server/v3",
		Note:       "a mutex around it gives the numbers; default options",
		Pipelining: "it always syncs entries, so it gets batches of 2,048, each with a sync",
		Open:       func(dir string) (harness.Log, error) { return open(dir) },
		ReadAll:    readAll,
	})
}

const batch = 2048

type log struct {
	mu      sync.Mutex
	wal     *wal.WAL
	next    uint64
	entries []*raftpb.Entry
}

func open(dir string) (*log, error) {
	l, err := wal.Create(zap.NewNop(), dir, nil)
	return &log{wal: l, next: 1}, err
}

func (l *log) Append(record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(0, record)
	return l.save(1)
}

func (l *log) AppendBatch(records [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, record := range records {
		l.add(i, record)
	}
	return l.save(len(records))
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
			if err := l.save(n); err != nil {
				return err
			}
			n = 0
		}
	}
	return l.save(n)
}

func (l *log) add(i int, record []byte) {
	if i == len(l.entries) {
		l.entries = append(l.entries, &raftpb.Entry{Index: new(uint64), Term: new(uint64)})
	}
	*l.entries[i].Index = l.next
	*l.entries[i].Term = 1
	l.entries[i].Data = record
	l.next++
}

func (l *log) save(n int) error { return l.wal.Save(&raftpb.HardState{}, l.entries[:n]) }

func (l *log) Close() error { return l.wal.Close() }

func readAll(dir string, see func([]byte) error) error {
	l, err := wal.OpenForRead(zap.NewNop(), dir, &walpb.Snapshot{})
	if err != nil {
		return err
	}
	defer l.Close()
	_, _, entries, err := l.ReadAll()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := see(entry.Data); err != nil {
			return err
		}
	}
	return nil
}

// Runs the work on the record writer of github.com/cockroachdb/pebble, as Pebble's own write-ahead log
// uses it.
package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/esker-log/esker/bench/go/harness"
)

func main() {
	harness.Main(harness.Peer{
		Module: "github.com/cockroachdb/pebble/v2",
		Note: "its own group commit: a mutex around SyncRecord, and the wait outside of it, as in Pebble; " +
			"one file without rotation, preallocated as Pebble does",
		Pipelining: "WriteRecord, and one SyncRecord at the end",
		Open:       func(dir string) (harness.Log, error) { return open(dir) },
		ReadAll:    readAll,
	})
}

const (
	number = 1
	// What Pebble preallocates with default options: 110 % of a memtable.
	preallocate = (64 << 20) / 10 * 11
)

type log struct {
	mu      sync.Mutex
	writer  *record.LogWriter
	waiting chan struct{}
}

func name(dir string) string { return filepath.Join(dir, "000001.log") }

func open(dir string) (*log, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := vfs.Default.Create(name(dir), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if parent, err := vfs.Default.OpenDir(dir); err != nil {
		return nil, err
	} else if err := errors.Join(parent.Sync(), parent.Close()); err != nil {
		return nil, err
	}
	file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{PreallocateSize: preallocate})
	waiting := make(chan struct{}, record.SyncConcurrency-1)
	writer := record.NewLogWriter(file, number, record.LogWriterConfig{
		QueueSemChan:        waiting,
		WriteWALSyncOffsets: func() bool { return true },
	})
	return &log{writer: writer, waiting: waiting}, nil
}

func (l *log) Append(data []byte) error {
	var durable sync.WaitGroup
	var failed error
	durable.Add(1)
	l.waiting <- struct{}{}
	l.mu.Lock()
	_, err := l.writer.SyncRecord(data, &durable, &failed)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	durable.Wait()
	return failed
}

func (l *log) Pipeline(records *harness.Records) error {
	for data := records.Next(); data != nil; data = records.Next() {
		if records.AtLast() {
			if err := l.Append(data); err != nil {
				return err
			}
		} else if _, err := l.writer.WriteRecord(data); err != nil {
			return err
		}
	}
	return nil
}

func (l *log) Close() error { return l.writer.Close() }

func readAll(dir string, see func([]byte) error) error {
	file, err := os.Open(name(dir))
	if err != nil {
		return err
	}
	defer file.Close()
	reader := record.NewReader(file, number)
	var data []byte
	for {
		one, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if data, err = readInto(data[:0], one); err != nil {
			return err
		}
		if err := see(data); err != nil {
			return err
		}
	}
}

func readInto(data []byte, from io.Reader) ([]byte, error) {
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return data, err
		}
	}
}

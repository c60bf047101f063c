// Runs the work on github.com/tidwall/wal.
package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync"

	"github.com/esker-log/esker/bench/go/harness"
	"github.com/tidwall/wal"
)

func main() {
	harness.Main(harness.Peer{
		Module: "github.com/tidwall/wal",
		Note: "a mutex around it gives the numbers; it has no checksums, so CRC-32C is put before each " +
			"record and checked at reading",
		Pipelining: "NoSync while appending, one Sync at the end",
		Open:       func(dir string) (harness.Log, error) { return open(dir) },
		ReadAll:    readAll,
	})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type log struct {
	mu     sync.Mutex
	dir    string
	wal    *wal.Log
	next   uint64
	noSync bool
	batch  wal.Batch
	framed []byte
}

func options(noSync bool) *wal.Options {
	options := *wal.DefaultOptions
	options.NoSync = noSync
	options.NoCopy = true
	return &options
}

func open(dir string) (*log, error) {
	l, err := wal.Open(dir, options(false))
	return &log{dir: dir, wal: l, next: 1}, err
}

func (l *log) frame(record []byte) []byte {
	l.framed = binary.LittleEndian.AppendUint32(l.framed[:0], crc32.Checksum(record, castagnoli))
	l.framed = append(l.framed, record...)
	return l.framed
}

func (l *log) Append(record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.wal.Write(l.next, l.frame(record))
	l.next++
	return err
}

func (l *log) AppendBatch(records [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch.Clear()
	for _, record := range records {
		l.batch.Write(l.next, l.frame(record))
		l.next++
	}
	return l.wal.WriteBatch(&l.batch)
}

func (l *log) Pipeline(records *harness.Records) error {
	if err := l.stopSyncing(); err != nil {
		return err
	}
	for record := records.Next(); record != nil; record = records.Next() {
		if err := l.Append(record); err != nil {
			return err
		}
	}
	return l.wal.Sync()
}

// stopSyncing opens the log again, because whether it syncs is said when it is opened.
func (l *log) stopSyncing() (err error) {
	if l.noSync {
		return nil
	}
	if err := l.wal.Close(); err != nil {
		return err
	}
	l.noSync = true
	l.wal, err = wal.Open(l.dir, options(true))
	return err
}

func (l *log) Read(number uint64) ([]byte, error) { return read(l.wal, number) }

func (l *log) Close() error { return l.wal.Close() }

func read(l *wal.Log, number uint64) ([]byte, error) {
	framed, err := l.Read(number)
	if err != nil {
		return nil, err
	}
	if len(framed) < 4 || binary.LittleEndian.Uint32(framed) != crc32.Checksum(framed[4:], castagnoli) {
		return nil, errors.New("the checksum does not match")
	}
	return framed[4:], nil
}

func readAll(dir string, see func([]byte) error) error {
	l, err := wal.Open(dir, options(false))
	if err != nil {
		return err
	}
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	for number := uint64(1); number <= last; number++ {
		record, err := read(l, number)
		if err == nil {
			err = see(record)
		}
		if err != nil {
			return err
		}
	}
	return l.Close()
}

// Runs the work on slots on github.com/dgraph-io/badger.
package main

import (
	"encoding/binary"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/esker-log/esker/bench/go/harness"
)

func main() {
	harness.Main(harness.Peer{
		Module: "github.com/dgraph-io/badger/v4",
		Note: "SyncWrites, DetectConflicts, metrics and compression are off; the key is the slot, big-endian; a " +
			"transaction for each write, a WriteBatch for a batch; whether a slot is committed is in the " +
			"entry's user meta byte, and what is committed is written once",
		OpenSlots: open,
	})
}

const (
	accepted  = 1
	committed = 2
)

type slots struct{ db *badger.DB }

func open(dir string) (harness.Slots, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).
		WithLogger(nil).
		WithSyncWrites(false).
		WithDetectConflicts(false).
		WithMetricsEnabled(false).
		WithCompression(options.None))
	return slots{db}, err
}

func entry(slot uint64, value []byte, state byte) *badger.Entry {
	return badger.NewEntry(binary.BigEndian.AppendUint64(nil, slot), value).WithMeta(state)
}

func (s slots) set(entry *badger.Entry) error {
	return s.db.Update(func(txn *badger.Txn) error { return txn.SetEntry(entry) })
}

func (s slots) Put(slot uint64, value []byte) error { return s.set(entry(slot, value, committed)) }

func (s slots) Accept(slot uint64, value []byte) error { return s.set(entry(slot, value, accepted)) }

func (s slots) PutBatch(numbers []uint64, values [][]byte) error {
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for i, slot := range numbers {
		if err := batch.SetEntry(entry(slot, values[i], committed)); err != nil {
			return err
		}
	}
	return batch.Flush()
}

func (s slots) Sync() error { return s.db.Sync() }

func (s slots) Close() error { return s.db.Close() }

func (s slots) View() harness.View { return view{s.db.NewTransaction(false)} }

type view struct{ txn *badger.Txn }

func (v view) Get(slot uint64, see func([]byte) error) error {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], slot)
	item, err := v.txn.Get(key[:])
	if err != nil {
		return err
	}
	return item.Value(see)
}

func (v view) Committed(see func(uint64, []byte) error) error { return v.each(committed, true, see) }

func (v view) Accepted(see func(uint64, []byte) error) error { return v.each(accepted, false, see) }

func (v view) each(state byte, prefetch bool, see func(uint64, []byte) error) error {
	settings := badger.DefaultIteratorOptions
	settings.PrefetchValues = prefetch
	all := v.txn.NewIterator(settings)
	defer all.Close()
	for all.Rewind(); all.Valid(); all.Next() {
		item := all.Item()
		if item.UserMeta() != state {
			continue
		}
		slot := binary.BigEndian.Uint64(item.Key())
		if err := item.Value(func(value []byte) error { return see(slot, value) }); err != nil {
			return err
		}
	}
	return nil
}

func (v view) Close() { v.txn.Discard() }

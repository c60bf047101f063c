package harness

import (
	"encoding/binary"
	"math/bits"
)

const (
	head   = 12
	sector = 512
	stamp  = 8
)

// payload makes the records of one writer. Every byte follows from seed, writer and count.
type payload struct {
	seed        uint64
	writer      uint32
	least, most int
	bytes       []byte
}

func newPayload(job Job, writer int) *payload {
	p := &payload{job.Seed, uint32(writer), job.Least, job.Most, make([]byte, job.Most)}
	key := mix(job.Seed ^ bits.RotateLeft64(uint64(writer), 32))
	var word [8]byte
	for i := 0; i < len(p.bytes); i += 8 {
		binary.LittleEndian.PutUint64(word[:], mix(key+uint64(i/8)))
		copy(p.bytes[i:], word[:])
	}
	return p
}

// record makes the record of this count; it is good until the next call.
func (p *payload) record(count uint64) []byte {
	key := mix(p.seed + mix(count^bits.RotateLeft64(uint64(p.writer), 40)))
	high, _ := bits.Mul64(mix(key), uint64(p.most-p.least)+1)
	record := p.bytes[:p.least+int(high)]
	value := key
	var word [stamp]byte
	for at := 0; at < len(record); at += sector {
		value = value*0x9E3779B97F4A7C15 + 1
		binary.LittleEndian.PutUint64(word[:], value)
		start := at
		if at == 0 {
			start = head
		}
		if start < len(record) {
			copy(record[start:], word[:])
		}
	}
	binary.LittleEndian.PutUint32(record, p.writer)
	binary.LittleEndian.PutUint64(record[4:], count)
	return record
}

func mix(number uint64) uint64 {
	z := number + 0x9E3779B97F4A7C15
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

package harness

import "math/bits"

// plan says which operations read, and which slots: the same for every system.
type plan struct {
	seed  uint64
	reads uint64
}

func newPlan(job Job) plan { return plan{job.Seed, uint64(job.Reads)} }

// isRead says whether the operation of this number reads.
func (p plan) isRead(number uint64) bool {
	return mix(p.seed^bits.RotateLeft64(number, 17))%100 < p.reads
}

// pick is the slot that it reads, one below the given one.
func (p plan) pick(number, below uint64) uint64 {
	high, _ := bits.Mul64(mix(p.seed+number), below)
	return high
}

// shuffled is every number below the given one, once.
func (p plan) shuffled(below uint64) []uint64 {
	all := make([]uint64, below)
	for i := range all {
		all[i] = uint64(i)
	}
	for i := len(all) - 1; i > 0; i-- {
		other, _ := bits.Mul64(mix(p.seed^uint64(i)), uint64(i)+1)
		all[i], all[other] = all[other], all[i]
	}
	return all
}

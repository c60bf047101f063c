package harness

import (
	"math/bits"
	"time"
)

const (
	steps  = 64
	powers = 36
)

// histogram counts times in nanoseconds; what is less than 1/64 apart counts as one.
type histogram [powers * steps]uint32

func (h *histogram) add(took time.Duration) {
	ns := uint64(max(took, 0))
	shift := max(bits.Len64(ns)-7, 0)
	h[min(shift*steps+int(ns>>shift), len(h)-1)]++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// quantileUs is the time in microseconds that this share of the calls stayed within.
func (h *histogram) quantileUs(share float64) float64 {
	total := uint64(0)
	for _, n := range h {
		total += uint64(n)
	}
	rank, seen := uint64(share*float64(total)), uint64(0)
	for i, n := range h {
		seen += uint64(n)
		if seen > rank {
			shift := max(i/steps-1, 0)
			return float64(uint64(i-shift*steps)<<shift) / 1e3
		}
	}
	return 0
}

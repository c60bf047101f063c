package harness

import "testing"

// The Rust side has the same test: both must do the same.
func TestBothSidesPlanTheSame(t *testing.T) {
	p := plan{seed: 7, reads: 90}
	sum, reads := uint64(0), 0
	for number := range uint64(1000) {
		sum = mix(sum + p.pick(number, 5000))
		if p.isRead(number) {
			reads++
		}
	}
	for _, slot := range p.shuffled(1000) {
		sum = mix(sum + slot)
	}
	if sum != goldenPlan || reads != goldenReads {
		t.Fatalf("sum %#x, %d reads", sum, reads)
	}
}

const (
	goldenPlan  = 0x5bc280deeb3768aa
	goldenReads = 905
)

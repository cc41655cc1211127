package lease

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestBatchesFitIntoTheirBound: batches that are late are halved until none is, and grow again when
// statements are quick.
func TestBatchesFitIntoTheirBound(t *testing.T) {
	t.Parallel()
	const bound = time.Second
	var s sized
	n, late := 1024, 0
	run := func(each time.Duration) {
		took, err := time.Duration(n)*each, error(nil)
		if took > bound {
			took, err = bound, fmt.Errorf("a statement: %w", context.DeadlineExceeded)
			late++
		}
		n = s.after(n, took, bound, err)
	}
	for range 10 {
		run(4 * time.Millisecond)
	}
	if late > 3 || n > 128 || n < 32 {
		t.Errorf("%d batches were late, and then they have %d requests", late, n)
	}
	for range 10 {
		run(10 * time.Microsecond)
	}
	if n < 1024 {
		t.Errorf("batches of quick statements have %d requests", n)
	}
	if n = s.after(1, bound, bound, context.DeadlineExceeded); n == 0 {
		t.Error("one late request bounds nothing, and takes a bound away")
	}
}

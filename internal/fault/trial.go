package fault

import "time"

const (
	mostFailed = 8                // requests that failed alone, before a Trial blames the server
	mostTime   = 10 * time.Second // after the first error; a busy server is no reason
)

// Trial finds the requests of a shared statement that an error is of. A statement that fails is
// divided, and its parts are sent one after the other. An error of the class Poison divides a
// statement until each culprit is alone. Of a MayBeOnes error one request is sent alone, from the
// begin, the end or the middle in turn. Once any part has succeeded the server is well, and the rest
// is divided in halves. If several requests have failed and no part has succeeded, the error is the
// server's, and that of all.
type Trial struct {
	worked bool // a part has succeeded
	failed int  // requests that failed alone
	since  time.Time
}

// Worked takes note that a part has succeeded.
func (t *Trial) Worked() { t.worked = true }

// Split takes note that a statement for n requests has failed with an error of a class. The requests
// from one to before another are to be sent again first, then the others. If there are none, the
// error is of all.
func (t *Trial) Split(n int, is Fault) (from, to int) {
	switch {
	case is == Poison, t.worked && is.MayBeOnes():
		return 0, n / 2
	case !is.MayBeOnes():
	case n == 1:
		t.failed++
	case t.since.IsZero():
		t.since = time.Now()
		return 0, 1
	case t.failed < mostFailed && time.Since(t.since) < mostTime:
		one := []int{0, n - 1, n / 2}[t.failed%3]
		return one, one + 1
	}
	return 0, 0
}

// MayBeOnes tells that one request of a shared statement may have caused an error of the class:
// the server sent it, and nothing was written. Of Poison that is certain.
func (f Fault) MayBeOnes() bool {
	switch f {
	case Poison, Retry, Duplicate, Busy, Full, Other:
		return true
	}
	return false
}

package sqlerr

import "time"

const (
	maxFailed = 8                // requests that failed alone, before a Trial blames the server
	maxTime   = 10 * time.Second // after the first error; a busy server is no reason
)

// Trial finds the requests of a shared statement that an error is of. A statement that fails is
// divided, and its parts are sent one after the other. An error of the class BadInput divides a
// statement until each culprit is alone. Of a MayBeOfOne error one request is sent alone, from the
// begin, the end or the middle in turn. Once any part has succeeded the server is well, and the
// rest is divided in halves. If several requests have failed and no part has succeeded, the error
// is the server's, and that of all.
type Trial struct {
	worked bool // a part has succeeded
	failed int  // requests that failed alone
	since  time.Time
}

// Worked takes note that a part has succeeded.
func (t *Trial) Worked() { t.worked = true }

// Split takes note that a statement for n requests has failed with an error of a class. The
// requests from one to before another are to be sent again first, then the others. If there are
// none, the error is of all.
func (t *Trial) Split(n int, is Class) (from, to int) {
	switch {
	case is == BadInput, t.worked && is.MayBeOfOne():
		return 0, n / 2
	case !is.MayBeOfOne():
	case n == 1:
		t.failed++
	case t.since.IsZero():
		t.since = time.Now()
		return 0, 1
	case t.failed < maxFailed && time.Since(t.since) < maxTime:
		one := []int{0, n - 1, n / 2}[t.failed%3]
		return one, one + 1
	}
	return 0, 0
}

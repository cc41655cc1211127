package merge

// mostSuspects is how many single requests may fail in a row before a Trial assumes that no request is to blame.
const mostSuspects = 8

// Trial finds the requests of a batch that are to blame for an error. The batch is divided until each of them is alone. An error that
// need not be a request's is often the server's: then all requests fail alike. If several single requests have failed and no
// statement has succeeded, the rest is not divided any more.
type Trial struct {
	suspects  int
	succeeded bool
}

// Divides takes note of how a statement of n requests has ended, and tells whether it is to be run again in parts.
func (t *Trial) Divides(n int, err error, poison, suspect func(error) bool) bool {
	switch {
	case err == nil:
		t.succeeded = true
	case poison(err):
		return n > 1
	case !suspect(err):
	case n > 1:
		return t.succeeded || t.suspects < mostSuspects
	default:
		t.suspects++
	}
	return false
}

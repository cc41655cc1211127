package suite

import (
	"context"
	"errors"
	"hash/fnv"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
)

const (
	EnvSoak = "DBLOCK_SOAK" // set for tests of faults that take longer
	envSeed = "DBLOCK_SEED" // of a test that draws at random, to repeat a run
)

// Definite reports that an error promises that nothing was written.
func Definite(err error) bool { return err != nil && !IsUnknown(err) }

func IsUnknown(err error) bool { return errors.Is(err, dblock.ErrOutcomeUnknown) }

// SeedOf returns the seed of a test and prints it. A test draws the same each time; a soak draws
// anew.
func SeedOf(t *testing.T) uint64 {
	t.Helper()
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(t.Name()))
	seed := hash.Sum64()
	if os.Getenv(EnvSoak) != "" {
		seed = uint64(time.Now().UnixNano())
	}
	if given := os.Getenv(envSeed); given != "" {
		seed = Must(strconv.ParseUint(given, 10, 64))(t)
	}
	t.Logf("the same again: %s=%d", envSeed, seed)
	return seed
}

// LeastTrips counts the round trips of calls that are made several times, of which the one counts
// that made the fewest.
func LeastTrips(dialer *faultconn.Dialer) (least map[string]int, trips func(what string, call func())) {
	least = make(map[string]int)
	return least, func(what string, call func()) {
		dialer.Arm(0, 0, nil)
		call()
		n := dialer.Writes()
		if before, ok := least[what]; !ok || n < before {
			least[what] = n
		}
	}
}

// CloseWithin closes a Locker or a Queue, and waits for at most d.
func CloseWithin(c interface{ Close(context.Context) error }, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return c.Close(ctx)
}

// Must returns the value of a call, or ends the test on its error: v := suite.Must(f())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// Second returns the error of a call.
func Second[T any](_ T, err error) error { return err }

// As returns the error of type E in err, or ends the test.
func As[E error](t testing.TB, err error) (as E) {
	t.Helper()
	require.ErrorAs(t, err, &as)
	return as
}

// HostError is an error of a host, whose methods take no nil pointer.
type HostError struct {
	text string
	In   error
}

func (e *HostError) Error() string { return e.text }

func (e *HostError) Unwrap() error { return e.In }

var NoHostError *HostError

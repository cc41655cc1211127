package testdb

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
)

// ExampleDSN is DSN for Example functions, which have no testing.TB. It panics if a test would
// fail; done drops the database.
func ExampleDSN(kind devdb.Kind) (dsn string, done func()) {
	tb := &exampleTB{}
	return DSN(tb, kind), tb.done
}

// exampleTB is as much of a testing.TB as this package uses.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (tb *exampleTB) Helper()                           {}
func (tb *exampleTB) Cleanup(f func())                  { tb.cleanups = append(tb.cleanups, f) }
func (tb *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (tb *exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (tb *exampleTB) done() {
	for i := len(tb.cleanups) - 1; i >= 0; i-- {
		tb.cleanups[i]()
	}
	tb.cleanups = nil
}

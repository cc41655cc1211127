package mysqllock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/mysqllock"
)

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			answers.Verdicts{
				Kind: kind, Retryable: mysqllock.Retryable, IsLockTimeout: mysqllock.IsLockTimeout, IsDeadlock: mysqllock.IsDeadlock,
				Of: mysql.Classify,
			}.Run(t)
		})
	}
}

// TestVerdictsOfClusters: what only Galera and Group Replication say, in their words. A commit that
// failed for another reason may stand.
func TestVerdictsOfClusters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number uint16
		state  string
		text   string
		again  bool
		fault  sqlerr.Class
	}{
		{1213, "40001", "Deadlock found when trying to get lock; try restarting transaction", true, sqlerr.Retryable},
		{3101, "40000", "Plugin instructed the server to rollback the current transaction.", true, sqlerr.Retryable},
		{1180, "HY000", "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT", true, sqlerr.Retryable},
		{1180, "HY000", "Got error 149 \"Lock deadlock; Retry transaction\" during COMMIT", true, sqlerr.Retryable},
		{1180, "HY000", "Got error 28 - 'No space left on device' during COMMIT", false, sqlerr.Unresolved},
		{1180, "HY000", "Got error 1149 - 'another' during COMMIT", false, sqlerr.Unresolved},
		{1317, "70100", "Query execution was interrupted", false, sqlerr.Unresolved},
		{9999, "40001", "whatever a proxy may call it", true, sqlerr.Retryable},
	} {
		err := fmt.Errorf("a service: %w", &mysqldriver.MySQLError{Number: c.number, SQLState: [5]byte([]byte(c.state)), Message: c.text})
		if got := mysqllock.Retryable(err); got != c.again {
			t.Errorf("Retryable is %v: %v", got, err)
		}
		if got := mysql.Classify(err); got != c.fault {
			t.Errorf("it means %d, want %d: %v", got, c.fault, err)
		}
	}
}

// TestVerdictOfADial: a server to which no connection comes in time is out of reach, whatever was
// waited for. It is not busy.
func TestVerdictOfADial(t *testing.T) {
	t.Parallel()
	late := net.Dialer{Deadline: time.Now().Add(-time.Second)}
	_, err := late.DialContext(t.Context(), "tcp", "198.51.100.1:3306")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the dial: %v", err)
	}
	for _, err := range []error{err, sqlerr.Unwritten(err), fmt.Errorf("a service: %w", err)} {
		if got := mysql.Classify(err); got != sqlerr.Unavailable {
			t.Errorf("it means %d, want %d: %v", got, sqlerr.Unavailable, err)
		}
	}
}

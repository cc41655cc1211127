package faultmatrix

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Fault is one row of the matrix.
type Fault struct {
	Name string

	// Engines are the servers that can have it; nil: all.
	Engines []devdb.Kind

	// Own: it breaks the server, which no other run may use meanwhile.
	Own bool

	// Failover: the run has a server of its own with a synchronous replica.
	Failover bool

	// ClockSteps: the clocks of the other processes are set forwards and back.
	ClockSteps bool

	// Answers are errors that replace some of the server's answers.
	Answers map[devdb.Kind]faultconn.Answer

	// Inject lets the fault strike for a while and returns how often it did.
	Inject func(ctx context.Context, e *env) (strikes int, err error)
}

// has reports whether an engine can have the fault.
func (f Fault) has(kind devdb.Kind) bool { return f.Engines == nil || slices.Contains(f.Engines, kind) }

func (f Fault) inject(ctx context.Context, e *env) (strikes int, err error) {
	if f.Answers != nil {
		return replaceAnswers(ctx, e, f.Answers[e.kind])
	}
	return f.Inject(ctx, e)
}

// Faults are the rows of the matrix.
func Faults() []Fault {
	return slices.Concat(networkFaults, processFaults, sessionFaults, lockFaults, serverFaults, answerFaults)
}

// until repeats something for as long as a fault lasts. It sums up the strikes.
func until(ctx context.Context, pause time.Duration, strike func() (int, error)) (strikes int, err error) {
	for end := time.Now().Add(faultTime); (time.Now().Before(end) || strikes == 0) && ctx.Err() == nil; time.Sleep(pause) {
		n, err := strike()
		if strikes += n; err != nil {
			return strikes, err
		}
	}
	return strikes, ctx.Err()
}

// lasting is one strike that lasts as long as a fault does.
func lasting(ctx context.Context) (int, error) {
	select {
	case <-time.After(faultTime):
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// replaceAnswers replaces one answer in twelve.
func replaceAnswers(ctx context.Context, e *env, a faultconn.Answer) (strikes int, err error) {
	e.wire.Decide(func(n int) *faultconn.Answer {
		if n%12 == 0 {
			return &a
		}
		return nil
	})
	_, err = lasting(ctx)
	_, struck := e.wire.Disarm()
	return len(struck), err
}

// answers is an error of each engine: the SQLSTATE on Postgres, number and SQLSTATE on the others.
func answers(postgres, mysql, mysqlState, mariadb, mariadbState string, fatal, rollsBack bool) map[devdb.Kind]faultconn.Answer {
	return map[devdb.Kind]faultconn.Answer{
		devdb.Postgres: {Code: postgres, Fatal: fatal},
		devdb.MySQL:    {Code: mysql, State: mysqlState, Fatal: fatal, RollsBack: rollsBack},
		devdb.MariaDB:  {Code: mariadb, State: mariadbState, Fatal: fatal, RollsBack: rollsBack},
	}
}

var answerFaults = []Fault{
	{Name: "statement timeout", Answers: answers("57014", "3024", "HY000", "1969", "70100", false, false)},
	{Name: "deadlock", Answers: answers("40P01", "1213", "40001", "1213", "40001", false, true)},
	{Name: "lock timeout", Answers: answers("55P03", "1205", "HY000", "1205", "HY000", false, false)},
	{Name: "serialization failure", Engines: []devdb.Kind{devdb.Postgres, devdb.MariaDB}, Answers: answers("40001", "", "", "1020", "HY000", false, true)},
	{Name: "disk full", Answers: answers("53100", "1114", "HY000", "1021", "HY000", false, false)},
	{Name: "out of memory", Answers: answers("53200", "1037", "HY001", "1037", "HY001", false, false)},
	{Name: "read-only server", Answers: answers("25006", "1290", "HY000", "1290", "HY000", false, false)},
	{Name: "server shuts down", Answers: answers("57P01", "1053", "08S01", "1053", "08S01", true, false)},
}

// ids is a list of sessions.
func (e *env) ids(ctx context.Context, query string) ([]string, error) {
	return e.texts(ctx, fmt.Sprintf(query, e.app))
}

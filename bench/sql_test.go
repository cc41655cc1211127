package bench

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/pgscript"
	"github.com/dblock-go/dblock/internal/testdb"
)

// sqlRun is a script that has been opened on a database of the test's own.
type sqlRun struct {
	t     *testing.T
	env   *Env
	w     Workload
	round Round
}

// openScript opens round 1; env says what is not the default.
func openScript(t *testing.T, kind devdb.Kind, script, setup string, env *Env) *sqlRun {
	t.Helper()
	parsed, err := pgscript.Parse("file.sql", script, nil)
	if err != nil {
		t.Fatal(err)
	}
	env.Kind, env.Clients, env.Conns = kind, max(1, env.Clients), max(1, env.Conns)
	if env.DSN == "" {
		env.DSN = testdb.DSN(t, kind)
	}
	r := &sqlRun{t: t, env: env}
	if r.w, err = SQLScenario("file.sql", parsed, setup).Open(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.w.Close(); err != nil {
			t.Error(err)
		}
	})
	r.next(1)
	return r
}

func (r *sqlRun) next(n int) {
	r.t.Helper()
	var err error
	if r.round, err = r.w.Round(r.t.Context(), n); err != nil {
		r.t.Fatal(err)
	}
}

func (r *sqlRun) op(id int) Op {
	r.t.Helper()
	op, err := r.round.Client(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return op
}

// do runs the script some times by each caller, at once.
func (r *sqlRun) do(times int) {
	r.t.Helper()
	var all sync.WaitGroup
	for id := range r.env.Clients {
		op := r.op(id)
		all.Go(func() {
			for range times {
				if units, err := op(r.t.Context()); units != 1 || err != nil {
					r.t.Errorf("%d units, %v", units, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// ask gets one number from the database.
func (r *sqlRun) ask(query string) (n int64) {
	r.t.Helper()
	var err error
	if r.env.Kind == devdb.Postgres {
		pool, dialErr := pgxpool.New(r.t.Context(), r.env.DSN)
		if dialErr != nil {
			r.t.Fatal(dialErr)
		}
		defer pool.Close()
		err = pool.QueryRow(r.t.Context(), query).Scan(&n)
	} else {
		db, dialErr := sql.Open("mysql", r.env.DSN)
		if dialErr != nil {
			r.t.Fatal(dialErr)
		}
		defer func() { _ = db.Close() }()
		err = db.QueryRowContext(r.t.Context(), query).Scan(&n)
	}
	if err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (r *sqlRun) want(query string, want int64) {
	r.t.Helper()
	if got := r.ask(query); got != want {
		r.t.Errorf("%s: got %d, want %d", query, got, want)
	}
}

func eachSQLEngine(t *testing.T, test func(t *testing.T, kind devdb.Kind)) {
	t.Helper()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// sessionID is what tells connections apart.
func sessionID(kind devdb.Kind) string {
	if kind == devdb.Postgres {
		return "pg_backend_pid()"
	}
	return "connection_id()"
}

func TestSQLRunsTheScript(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		r := openScript(t, kind, `
\set n random(5, 5) * :scale
\set half :n / 2.0
BEGIN; -- a comment
INSERT INTO done (client, session, n, half) VALUES (:client_id, `+sessionID(kind)+`, :n, :half);
UPDATE accounts SET balance = balance + :n
 WHERE id = 1;
SELECT * FROM accounts WHERE id = :client_id + 1 OR id > 0;
\sleep 1 us
COMMIT;
`, `CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE done (client bigint, session bigint, n bigint, half float);
INSERT INTO accounts VALUES (1, 0), (2, 0);`, &Env{Clients: 3, Conns: 3})
		r.do(4)
		r.want("SELECT balance FROM accounts WHERE id = 1", 3*4*5)
		r.want("SELECT count(*) FROM done WHERE n = 5 AND half = 2.5", 12)
		r.want("SELECT count(DISTINCT client) FROM done", 3)
		r.want("SELECT count(*) FROM (SELECT DISTINCT client, session FROM done) d", 3)
		if kind == devdb.Postgres {
			if got := r.env.statements.Load(); got != 12*5 {
				t.Errorf("%d statements were counted, want %d", got, 12*5)
			}
		}
		r.next(2)
		r.do(1)
		r.want("SELECT count(DISTINCT session) FROM done", 6) // every round connects anew
	})
}

func TestSQLCallersTakeTurns(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		r := openScript(t, kind, "INSERT INTO done VALUES (:client_id, "+sessionID(kind)+");",
			"CREATE TABLE done (client bigint, session bigint);", &Env{Clients: 6, Conns: 2})
		r.do(5)
		r.want("SELECT count(*) FROM done", 30)
		r.want("SELECT count(DISTINCT client) FROM done", 6)
		if got := r.ask("SELECT count(DISTINCT session) FROM done"); got > 2 {
			t.Errorf("%d connections were used", got)
		}
	})
}

func TestSQLErrorsEndTheRunWithTheirLine(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		for name, tt := range map[string]struct{ script, want string }{
			"syntax":           {"SELECT 1;\n\nSELEC 2;\n", "file.sql:3: "},
			"unknown table":    {"SELECT 1;\nSELECT *\nFROM missing;\n", "file.sql:2: "},
			"expression":       {"\\set z :client_id\nSELECT 1;\n\\set a 1 / :z\n", `file.sql:3: \set a: division by zero`},
			"sleep":            {"\\set z 1e30\n\\sleep :z s", `file.sql:2: \sleep :z: `},
			"open transaction": {"BEGIN;\nSELECT 1;\n", "file.sql:2: the script ends and leaves a transaction open"},
			"twice a key":      {"INSERT INTO t VALUES (1);\nINSERT INTO t VALUES (1);", "file.sql:2: "},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := openScript(t, kind, tt.script, "CREATE TABLE t (a int PRIMARY KEY)", &Env{})
				_, err := r.op(0)(t.Context())
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				if kind := failureKind(err); kind != "" {
					t.Errorf("it would be counted as %s", kind)
				}
			})
		}
	})
}

// Two callers lock two rows, each in another order, until one of them is told of a deadlock.
func TestSQLDeadlocksAreFailures(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		r := openScript(t, kind, `BEGIN;
UPDATE t SET n = n + 1 WHERE id = :client_id;
UPDATE t SET n = n + 1 WHERE id = 1 - :client_id;
COMMIT;`, "CREATE TABLE t (id int PRIMARY KEY, n bigint); INSERT INTO t VALUES (0, 0), (1, 0);", &Env{Clients: 2, Conns: 2})
		var ok int64
		failed := contend(t, r, &ok)
		if failed.Kind != "deadlock" || !strings.Contains(failed.Error(), "file.sql:") {
			t.Errorf("got %v", failed)
		}
		r.want("SELECT sum(n) FROM t", 2*ok) // what failed was rolled back
	})
}

// contend has two callers go on until both have run the script after one of them failed.
func contend(t *testing.T, r *sqlRun, ok *int64) *Failure {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var first *Failure
	var all sync.WaitGroup
	for id := range 2 {
		op := r.op(id)
		all.Go(func() {
			for {
				_, err := op(ctx)
				mu.Lock()
				failed := first
				if err == nil {
					*ok++
				} else if !errors.As(err, &failed) {
					t.Error(err)
					mu.Unlock()
					cancel()
					return
				}
				first = failed
				mu.Unlock()
				if failed != nil && err == nil {
					return
				}
			}
		})
	}
	all.Wait()
	if first == nil {
		t.Fatal("no failure")
	}
	return first
}

func TestSQLSerializationFailures(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		if kind != devdb.Postgres {
			return // there it is a deadlock, if anything
		}
		r := openScript(t, kind, `BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT n FROM t;
UPDATE t SET n = n + 1;
COMMIT;`, "CREATE TABLE t (n bigint); INSERT INTO t VALUES (0);", &Env{Clients: 2, Conns: 2})
		var ok int64
		if failed := contend(t, r, &ok); failed.Kind != "serialization" {
			t.Errorf("got %v", failed)
		}
		r.want("SELECT n FROM t", ok)
	})
}

func TestSQLLockWaitTimeoutIsAFailure(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		if kind == devdb.Postgres {
			return
		}
		r := openScript(t, kind, `SET innodb_lock_wait_timeout = 1;
START TRANSACTION;
UPDATE t SET n = n + 1 WHERE id = 2;
UPDATE t SET n = n + 1 WHERE id = 1;
COMMIT;`, "CREATE TABLE t (id int PRIMARY KEY, n bigint); INSERT INTO t VALUES (1, 0), (2, 0);", &Env{})
		holder, err := dial(t.Context(), kind, r.env.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.close()
		for _, query := range []string{"START TRANSACTION", "UPDATE t SET n = 5 WHERE id = 1"} {
			if err := holder.exec(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		op := r.op(0)
		if _, err := op(t.Context()); failureKind(err) != "lock_wait_timeout" {
			t.Errorf("got %v", err)
		}
		if err := holder.exec(t.Context(), "COMMIT"); err != nil {
			t.Fatal(err)
		}
		if _, err := op(t.Context()); err != nil {
			t.Error(err)
		}
		r.want("SELECT n FROM t WHERE id = 2", 1)
	})
}

func TestSQLSetup(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		script, err := pgscript.Parse("file.sql", "SELECT 1", nil)
		if err != nil {
			t.Fatal(err)
		}
		for setup, want := range map[string]string{
			"CREATE TABLE t (a int);\nINSERT INTO missing VALUES (1);": "setup:2: ",
			"SELECT 1;\nBEGIN;": "setup:2: the script ends and leaves a transaction open",
			"SELECT 'a":         "setup:1: a quoted text",
		} {
			if kind != devdb.Postgres {
				want = "setup: " // the server splits it, and counts lines in its own way
				if strings.Contains(setup, "BEGIN") {
					continue
				}
			}
			env := &Env{Kind: kind, DSN: testdb.DSN(t, kind), Clients: 1, Conns: 1}
			if _, err := SQLScenario("file.sql", script, setup).Open(t.Context(), env); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q: got %v, want %s", setup, err, want)
			}
		}
		if kind == devdb.Postgres {
			openScript(t, kind, "SELECT 1", "CREATE TABLE t (a int); VACUUM t; -- it can't be part of a transaction\n", &Env{}).do(1)
		}
	})
}

func TestSQLCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	eachSQLEngine(t, func(t *testing.T, kind devdb.Kind) {
		sleep, asleep := "SELECT SLEEP(1000)", "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND info = 'SELECT SLEEP(1000)'"
		if kind == devdb.Postgres {
			sleep, asleep = "SELECT pg_sleep(1000)", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
		}
		for name, tt := range map[string]struct{ script, asleep string }{
			"statement": {sleep, asleep},
			"sleep":     {`\sleep 1000 s`, "SELECT 1"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cause := errors.New("enough")
				ctx, end := context.WithCancelCause(t.Context())
				r := openScript(t, kind, tt.script, "", &Env{Clients: 2, Conns: 1})
				ended := make(chan error)
				for id := range 2 { // one that is stuck, and one that waits for its connection
					op := r.op(id)
					go func() { _, err := op(ctx); ended <- err }()
				}
				for r.ask(tt.asleep) == 0 {
					time.Sleep(time.Millisecond)
				}
				end(cause)
				for range 2 {
					if err := <-ended; !errors.Is(err, cause) {
						t.Errorf("got %v", err)
					}
				}
				if _, err := r.op(0)(ctx); !errors.Is(err, cause) {
					t.Errorf("after the end: got %v", err)
				}
			})
		}
	})
}

package answers

import (
	"database/sql"
	"strconv"

	"github.com/dblock-go/dblock/internal/devdb"
)

// each is a mishap of one statement.
func each(query string) func(*sessions) error {
	return func(s *sessions) error { return s.exec(s.a, query) }
}

// together runs a statement in each session at once, one of which must fail; rollback lets the other go on.
func (s *sessions) together(a, b, rollback string) error {
	type outcome struct {
		of  *sql.Conn
		err error
	}
	ends := make(chan outcome, 2)
	for c, query := range map[*sql.Conn]string{s.a: a, s.b: b} {
		go func() { ends <- outcome{c, s.exec(c, query)} }()
	}
	first := <-ends
	if first.err != nil {
		s.must(first.of, rollback)
		<-ends
		return first.err
	}
	return (<-ends).err
}

func deadlocked(s *sessions) error {
	s.begin("READ COMMITTED")
	s.must(s.a, "UPDATE t SET v = v + 1 WHERE id = 1")
	s.must(s.b, "UPDATE t SET v = v + 1 WHERE id = 2")
	return s.together("UPDATE t SET v = v + 1 WHERE id = 2", "UPDATE t SET v = v + 1 WHERE id = 1", "ROLLBACK")
}

// writesSkewed: each reads what the other writes, so that neither was before the other.
func writesSkewed(s *sessions) error {
	s.begin("SERIALIZABLE")
	s.must(s.a, "SELECT sum(v) FROM t")
	s.must(s.b, "SELECT sum(v) FROM t")
	if err := s.together("UPDATE t SET v = v + 1 WHERE id = 1", "UPDATE t SET v = v + 1 WHERE id = 2", "ROLLBACK"); err != nil {
		return err
	}
	s.must(s.a, "COMMIT")
	return s.exec(s.b, "COMMIT")
}

// wroteStale: the row has changed since the transaction has first read.
func wroteStale(s *sessions) error {
	if s.kind == devdb.MariaDB {
		s.must(s.a, "SET innodb_snapshot_isolation = ON")
	}
	s.begin("REPEATABLE READ")
	s.must(s.a, "SELECT v FROM t WHERE id = 1")
	s.must(s.b, "UPDATE t SET v = 7 WHERE id = 1", "COMMIT")
	return s.exec(s.a, "UPDATE t SET v = v + 1 WHERE id = 1")
}

func notWaited(s *sessions) error {
	s.begin("READ COMMITTED")
	s.must(s.a, "UPDATE t SET v = 1 WHERE id = 1")
	return s.exec(s.b, "SELECT v FROM t WHERE id = 1 FOR UPDATE NOWAIT")
}

func waitedTooLong(s *sessions) error {
	inSeconds := "SET innodb_lock_wait_timeout = 1"
	s.must(s.b, s.on("SET lock_timeout = '10ms'", inSeconds, inSeconds))
	s.begin("READ COMMITTED")
	s.must(s.a, "UPDATE t SET v = 1 WHERE id = 1")
	return s.exec(s.b, "UPDATE t SET v = 2 WHERE id = 1")
}

// ranTooLong: SLEEP alone is ended without an error.
func ranTooLong(s *sessions) error {
	if s.kind == devdb.Postgres {
		s.must(s.a, "SET statement_timeout = '50ms'")
	}
	return s.exec(s.a, s.on("SELECT pg_sleep(60)",
		"SELECT /*+ MAX_EXECUTION_TIME(50) */ 1 FROM t WHERE SLEEP(60)",
		"SET STATEMENT max_statement_time = 0.05 FOR SELECT 1 FROM t WHERE SLEEP(60)"))
}

func wroteReadOnly(s *sessions) error {
	s.must(s.a, "START TRANSACTION READ ONLY")
	return s.exec(s.a, "UPDATE t SET v = 1 WHERE id = 1")
}

func killed(s *sessions) error {
	id := "SELECT CONNECTION_ID()"
	var n int64
	if err := s.a.QueryRowContext(s.Context(), s.on("SELECT pg_backend_pid()", id, id)).Scan(&n); err != nil {
		s.Fatal(err)
	}
	kill := "KILL "
	s.must(s.b, s.on("SELECT pg_terminate_backend(", kill, kill)+strconv.FormatInt(n, 10)+s.on(")", "", ""))
	for { // the kill is asked for, and comes when the server gets to it
		if err := s.exec(s.a, "SELECT 1"); err != nil {
			return err
		}
	}
}

// deadlockedByName: locks that belong to a session, and no rollback gives back.
func deadlockedByName(s *sessions) error {
	take := func(name string) string {
		get := "SELECT GET_LOCK('" + name + "', 60) FROM t WHERE id = 1"
		return s.on("SELECT pg_advisory_lock("+name+")", get, get)
	}
	s.must(s.a, take("1"))
	s.must(s.b, take("2"))
	release := "SELECT RELEASE_ALL_LOCKS()"
	return s.together(take("2"), take("1"), s.on("SELECT pg_advisory_unlock_all()", release, release))
}

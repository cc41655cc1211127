package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
)

// The products that tests don't run on, by the texts that they give.
func TestProductOf(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]Product{
		"PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc, 64-bit":                             PostgreSQL,
		"PostgreSQL 16.1 on aarch64-unknown-linux-gnu, compiled by aarch64-unknown-linux-gnu-gcc (GCC) 9.5.0, 64-bit":           PostgreSQL,
		"CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)":                                    CockroachDB,
		"PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 16.0.6, 64-bit":                       YugabyteDB,
		"PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, 64-bit":                                                      YugabyteDB,
		"PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:e7c2b1f14bb42a1018ac57d14f4436880e0a0515 Open Source) on x86":  Greenplum,
		"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 (Red Hat 3.4.2-6.fc3), Redshift 1.0.1": Redshift,
	} {
		if got := productOf(version); got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
}

func TestOnlyPostgresKeepsSessionsApart(t *testing.T) {
	t.Parallel()
	for _, p := range []Product{Citus, CockroachDB, YugabyteDB, Greenplum, Redshift} {
		s := Server{Product: p}
		if err := s.SessionLocks(); !errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("%s: %v", p, err)
		}
	}
	s := Server{Product: PostgreSQL}
	if err := s.SessionLocks(); err != nil {
		t.Error(err)
	}
}

// TestCitusIsSeen: only its extension shows it.
func TestCitusIsSeen(t *testing.T) {
	t.Parallel()
	for extension, want := range map[string]Product{"true": Citus, "false": PostgreSQL} {
		s := Server{Product: PostgreSQL, Backend: 5}
		row := [][]byte{[]byte("5"), []byte("false"), []byte("off"), []byte("1"), []byte("u"), []byte(extension)}
		if err := s.fill(row, time.Time{}, 0); err != nil || s.Product != want || s.Pooled {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// TestASessionThatMovesIsPooled, also if a pooler returns the first server process's true number.
func TestASessionThatMovesIsPooled(t *testing.T) {
	t.Parallel()
	s := Server{Product: PostgreSQL, Backend: 5}
	row := [][]byte{[]byte("6"), []byte("false"), []byte("off"), []byte("1"), []byte("u"), []byte("false")}
	if err := s.fill(row, time.Time{}, 0); err != nil || !s.Pooled || s.SessionLocks() == nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAStrangeAnswerIsAnError, and no panic in the service.
func TestAStrangeAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string][]*pgconn.Result{
		"none": nil, "no row": {{}}, "two rows": {{Rows: [][][]byte{{nil}, {nil}}}}, "other columns": {{Rows: [][][]byte{{nil, nil}}}},
	} {
		if row, err := only(answer, 1); err == nil {
			t.Errorf("%s: %v", name, row)
		}
	}
	if _, err := only([]*pgconn.Result{{Rows: [][][]byte{{nil}}}}, 1); err != nil {
		t.Error(err)
	}
	if _, err := pid([]byte("many")); err == nil {
		t.Error("a number that is none")
	}
}

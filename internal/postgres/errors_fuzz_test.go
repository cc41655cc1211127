package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// FuzzErrorResponse sends error messages by way of pgx. Each has one class, whatever its fields,
// and none panics.
func FuzzErrorResponse(f *testing.F) {
	for _, body := range []string{
		"SERROR\x00VERROR\x00C40001\x00Mno\x00\x00", "SFATAL\x00VFATAL\x00C57P01\x00Mno\x00\x00", "SERROR\x00CX\x00\x00", "C\x00\x00", "\x00", "",
		"SFEHLER\x00C23505\x00Mno\x00nkey\x00\x00", "SERROR\x00C23502\x00ccolumn\x00\x00", "C40P01\x00C1\x00\x00", "CÄ\x00\x00",
		"SFATAL\x00VFATAL\x00C25P04\x00Mno\x00\x00",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := faultconn.PostgresError(body)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			pg = new(pgconn.PgError) // pgx refuses a body that it can't read
		}
		class, unwritten := postgres.Classify(err), postgres.Classify(sqlerr.Unwritten(err))
		if class < sqlerr.Unclassified || class > sqlerr.NotPermitted || unwritten < sqlerr.Unclassified || unwritten > sqlerr.NotPermitted {
			t.Errorf("%q is of no class: %d, %d", body, class, unwritten)
		}
		if unwritten == sqlerr.Unresolved || postgres.Classify(fmt.Errorf("a service: %w", err)) != class {
			t.Errorf("%q is %v, %v if nothing was written", body, class, unwritten)
		}
		if pg.Code != "" && pg.SeverityUnlocalized == "FATAL" && (class == sqlerr.Unclassified || unwritten == sqlerr.Unclassified) {
			t.Errorf("%q ends the session, and is %v, %v if nothing was written", body, class, unwritten)
		}
		if postgres.IsConflict(err) != (class == sqlerr.Retryable) || postgres.IsConflict(err) != (postgres.IsDeadlock(err) || postgres.IsUnserializable(err)) {
			t.Errorf("%q is %v, a conflict: %v", body, class, postgres.IsConflict(err))
		}
		if postgres.IsLocked(err) && class != sqlerr.Busy {
			t.Errorf("%q is locked, and %v", body, class)
		}
		if postgres.Code(err) != pg.Code || postgres.Violates(err, "none\x00") || postgres.LacksValue(err, "none\x00") || postgres.RefusesParameters(err) != (pg.Code == "08P01" || pg.Code == "22023") {
			t.Errorf("%q has the code %q", body, postgres.Code(err))
		}
	})
}

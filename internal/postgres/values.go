package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// UUID returns an id as pgx sends it.
func UUID[T ~[16]byte](id T) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// UUIDs returns ids as pgx sends them.
func UUIDs[T ~[16]byte](ids []T) []pgtype.UUID {
	all := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		all[i] = UUID(id)
	}
	return all
}

// ToMicros returns a time as statements have it. What is left of a microsecond is one.
func ToMicros(d time.Duration) int64 {
	if d > 0 && d < time.Microsecond {
		return 1
	}
	return d.Microseconds()
}

// FromMicros returns the time of an answer.
func FromMicros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
)

// Members runs the statements on the rows of members.
type Members struct {
	beats, others *Pool
	beatsOn, on   pgdb.DBTX
	q             pgdb.Queries
}

// NewMembers returns the members in a schema. Heartbeats have the pool beats.
func NewMembers(s *Schema, beats, others *Pool) Members {
	return Members{beats: beats, others: others, beatsOn: s.On(beats), on: s.On(others)}
}

// Register makes the member's row.
func (m *Members) Register(ctx context.Context, id member.ID, label string, ttl time.Duration) error {
	return m.q.Register(ctx, m.beatsOn, UUID(id), label, ToMicros(ttl))
}

// Heartbeat moves the member's end.
func (m *Members) Heartbeat(ctx context.Context, id member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	beat, err = m.q.Heartbeat(ctx, m.beatsOn, ToMicros(ttl), UUID(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return beat, err == nil, err
}

// Leave deletes the member's row.
func (m *Members) Deregister(ctx context.Context, id member.ID) error {
	return m.q.Deregister(ctx, m.beatsOn, UUID(id))
}

// Broken counts the connections of both pools. A heartbeat takes one of them, which the pool has
// looked at.
func (m *Members) Broken() int64 {
	n := m.beats.Broken()
	if m.others != m.beats {
		n += m.others.Broken()
	}
	return n
}

// Evict is two statements, each in a snapshot of its own.
func (m *Members) Evict(ctx context.Context, id member.ID) (gone bool, err error) {
	if err := m.q.Evict(ctx, m.on, UUID(id)); err != nil {
		return false, err
	}
	stands, err := m.Exists(ctx, id)
	return err == nil && !stands, err
}

// Exists reads the member's row.
func (m *Members) Exists(ctx context.Context, id member.ID) (bool, error) {
	return m.q.IsMember(ctx, m.on, UUID(id))
}

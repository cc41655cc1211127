package mysqllock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysqltext"
)

// Acquire is one UPDATE where one ask is granted, and one SELECT more for those that are not, or for a
// batch. Only rows that are missing take more: they are made, free, and asked for again.
func (e *engine) Acquire(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	answers := make([]lease.Answer, len(asks))
	missing, err := e.grant(ctx, by, asks, answers)
	if err != nil || len(missing) == 0 {
		return answers, err
	}
	again := make([]lease.Ask, len(missing))
	for n, i := range missing {
		again[n] = asks[i]
	}
	got := make([]lease.Answer, len(again))
	if err = e.makeRows(ctx, again); err == nil {
		_, err = e.grant(ctx, by, again, got)
	}
	if err != nil {
		return nil, half(err, len(again) < len(asks))
	}
	for n, i := range missing {
		answers[i] = got[n]
	}
	return answers, nil
}

// grant takes what is free, and finds out about the rest. It returns which of the rows are missing.
func (e *engine) grant(ctx context.Context, by lease.By, asks []lease.Ask, answers []lease.Answer) (missing []int, err error) {
	var taken, token int64
	err = e.once(ctx, func(on mysqldb.DBTX) error {
		result, err := on.ExecContext(ctx, repeated(mysqldb.AcquireLeases, len(asks)), askArgs(by, asks)...)
		if err != nil {
			return err
		}
		if taken, err = result.RowsAffected(); err != nil {
			return err
		}
		token, err = result.LastInsertId()
		return err
	})
	if err != nil {
		return nil, err
	}
	if taken == 1 && len(asks) == 1 {
		answers[0].Token = token
		return nil, nil
	}
	missing, seen, err := e.see(ctx, by, asks, answers)
	switch {
	case err != nil:
		return nil, half(err, taken > 0)
	case seen < taken:
		return nil, errUnseen // somebody reads it back who does not see it: better in doubt than held for ever
	}
	return missing, nil
}

// errUnseen says that a lease was granted that could not be read back: it may stand. It is Lost.
var errUnseen = errors.New("dblock: a lease was granted, and not found when it was read back")

// see reads who has what; a lease that is there under an ask's handle was granted to it.
func (e *engine) see(
	ctx context.Context, by lease.By, asks []lease.Ask, answers []lease.Answer,
) (missing []int, granted int64, err error) {
	keys := make([][]byte, len(asks))
	at := make(map[string]int, len(asks))
	for i, a := range asks {
		keys[i] = []byte(a.Key)
		at[a.Key] = i
	}
	var rows []mysqldb.SeeLeasesRow
	err = e.read(ctx, func(on mysqldb.DBTX) (err error) {
		rows, err = e.q.SeeLeases(ctx, on, by.Member[:], by.Beat, keys)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for _, r := range rows {
		i := at[string(r.LeaseKey)]
		delete(at, string(r.LeaseKey))
		if r.Handle.Valid && id(r.Handle.String) == asks[i].Handle {
			answers[i] = lease.Answer{Token: r.Token}
			granted++
			continue
		}
		answers[i] = refused(r)
	}
	for _, i := range at {
		missing = append(missing, i)
	}
	slices.Sort(missing)
	return missing, granted, nil
}

func refused(r mysqldb.SeeLeasesRow) lease.Answer {
	a := lease.Answer{MemberGone: !r.Alive, Held: r.Held == 1}
	if a.Held {
		a.Holder = lease.Holder{
			Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Dead: r.HolderDead == 1,
			Remaining: micros(r.RemainingUs),
		}
	}
	return a
}

// makeRows makes the rows of keys that have none, in the order of the keys.
func (e *engine) makeRows(ctx context.Context, asks []lease.Ask) error {
	keys := make([]string, len(asks))
	for i, a := range asks {
		keys[i] = a.Key
	}
	slices.Sort(keys)
	rows := make([]any, len(keys))
	for i, key := range keys {
		rows[i] = []byte(key)
	}
	// Nobody's lease is in these rows: whatever became of them, nothing was granted.
	return noWrite(e.once(ctx, func(on mysqldb.DBTX) error {
		_, err := on.ExecContext(ctx, mysqltext.Rows(mysqldb.MakeLeases, len(rows)), rows...)
		return err
	}))
}

// askArgs are the arguments of AcquireLeases.
func askArgs(by lease.By, asks []lease.Ask) []any {
	args := []any{by.Member[:], by.Beat}
	for _, a := range asks {
		args = append(args, []byte(a.Key), a.Handle[:], a.Instead[:], keeper(by, a), a.Hold.Microseconds(), []byte(a.Label), a.Data)
	}
	return args
}

// keeper is whose heartbeat keeps the lease; empty is nobody.
func keeper(by lease.By, a lease.Ask) []byte {
	if a.Detached {
		return nil
	}
	return by.Member[:]
}

// id reads a member or a handle; nothing is zero.
func id(text string) (id member.ID) {
	copy(id[:], text)
	return id
}

// micros is a duration that the server told; what is past is none.
func micros(us int64) time.Duration { return time.Duration(max(us, 0)) * time.Microsecond }

// repeated has a statement ask n times: it repeats the SELECT of the derived table that is called ask.
func repeated(query string, n int) string {
	end := strings.Index(query, ") ask\n")
	begin := strings.LastIndex(query[:end], "SELECT ")
	one := strings.TrimSpace(query[begin:end])
	return query[:begin] + strings.Repeat(one+" UNION ALL ", n-1) + query[begin:]
}

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
	"github.com/dblock-go/dblock/internal/mysqlfault"
)

// Acquire is one UPDATE where one ask is granted, and one SELECT more for those that are not, or for a
// batch. Rows that are missing are made, and granted by that; a lone ask tries it before it looks.
func (e *engine) Acquire(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	if len(asks) == 1 && !asks[0].Contended {
		return e.acquireOne(ctx, by, asks[0])
	}
	answers := make([]lease.Answer, len(asks))
	missing, err := e.grant(ctx, by, asks, answers)
	if err != nil || len(missing) == 0 {
		return answers, err
	}
	slices.SortFunc(missing, func(i, j int) int { return strings.Compare(asks[i].Key, asks[j].Key) })
	fresh := make([]lease.Ask, len(missing))
	for n, i := range missing {
		fresh[n] = asks[i]
	}
	token, made, err := e.makeRows(ctx, by, fresh)
	if err != nil {
		return nil, half(err, len(fresh) < len(asks))
	}
	got := make([]lease.Answer, len(fresh))
	if made == int64(len(fresh)) {
		for n := range got {
			got[n].Token = token
		}
	} else if err := e.seeGranted(ctx, by, fresh, got, made); err != nil {
		return nil, half(err, len(fresh) < len(asks))
	}
	for n, i := range missing {
		answers[i] = got[n]
	}
	return answers, nil
}

// acquireOne takes one key where it is free, makes its row where that is missing, and else says who has it.
func (e *engine) acquireOne(ctx context.Context, by lease.By, a lease.Ask) ([]lease.Answer, error) {
	asks, answers := []lease.Ask{a}, make([]lease.Answer, 1)
	taken, token, err := e.take(ctx, by, asks)
	if err == nil && taken == 0 {
		token, taken, err = e.makeRows(ctx, by, asks)
	}
	if err != nil {
		return nil, err
	}
	if taken == 1 {
		answers[0].Token = token
		return answers, nil
	}
	return answers, e.seeGranted(ctx, by, asks, answers, 0)
}

// grant takes what is free, and finds out about the rest. It returns which of the rows are missing.
func (e *engine) grant(ctx context.Context, by lease.By, asks []lease.Ask, answers []lease.Answer) (missing []int, err error) {
	taken, token, err := e.take(ctx, by, asks)
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

// take grants what is free; the token is that of the last one.
func (e *engine) take(ctx context.Context, by lease.By, asks []lease.Ask) (taken, token int64, err error) {
	if len(asks) == 1 {
		return e.takeOne(ctx, by, asks[0])
	}
	return e.change(ctx, repeated(mysqldb.AcquireLeases, len(asks)), askArgs(by, asks))
}

// change runs a statement that tells a number as its insert id.
func (e *engine) change(ctx context.Context, statement string, args []any) (rows, told int64, err error) {
	err = e.once(ctx, func(on mysqldb.DBTX) error {
		result, err := on.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		rows, told, err = changed(result)
		return err
	})
	return rows, told, err
}

// seeGranted reads what became of asks of which so many were granted at least.
func (e *engine) seeGranted(ctx context.Context, by lease.By, asks []lease.Ask, answers []lease.Answer, granted int64) error {
	missing, seen, err := e.see(ctx, by, asks, answers)
	for _, i := range missing { // no row was made: the member is gone, or somebody has locked the gap
		answers[i].MemberGone = true
	}
	switch {
	case err != nil:
		return half(err, granted > 0)
	case seen < granted:
		return errUnseen
	}
	return nil
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

// makeRows makes the rows of keys that have none, and grants them. The keys are in order.
func (e *engine) makeRows(ctx context.Context, by lease.By, asks []lease.Ask) (token, made int64, err error) {
	args := []any{by.Member[:], by.Beat}
	for _, a := range asks {
		args = append(args, []byte(a.Key), a.Handle[:], keeper(by, a), a.Hold.Microseconds(), []byte(a.Label), a.Data)
	}
	statement := repeated(mysqldb.MakeLeases, len(asks))
	if e.mariaDB {
		statement = withoutWaiting + statement
	}
	made, token, err = e.change(ctx, statement, args)
	if mysqlfault.IsLocked(err) {
		return 0, 0, nil
	}
	return token, made, err
}

// askArgs are the arguments of AcquireLeases.
func askArgs(by lease.By, asks []lease.Ask) []any {
	args := []any{by.Member[:], by.Beat}
	for _, a := range asks {
		args = append(args, []byte(a.Key), a.Handle[:], a.Instead[:], a.Gone[:], keeper(by, a), a.Hold.Microseconds(), []byte(a.Label), a.Data)
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

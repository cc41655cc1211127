package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/session"
)

// SessionLocks lists named locks that are held, whatever program holds them. It has those whose
// keys were noted, which a Session has held for longer than a second. As far as the server and the
// account's privileges show them, it also has those of other programs: on MySQL by
// performance_schema, on MariaDB by the plugin metadata_lock_info. Schema is the database of
// dblock's tables; default: that of the connections.
//
// Errors: dblock.ErrInvalid, dblock.ErrSchema, dblock.ErrUnavailable.
func SessionLocks(ctx context.Context, pool *sql.DB, schema string) ([]dblock.SessionLock, error) {
	if pool == nil {
		return nil, &dblock.InvalidError{Field: "pool", Reason: "it is nil"}
	}
	on := mysql.On(pool, schema)
	if _, err := mysql.CheckSchema(ctx, pool, schema); err != nil {
		return nil, err
	}
	var q mysqldb.Queries
	known, err := q.ListSessionLocks(ctx, on)
	if err != nil {
		return nil, err
	}
	held, err := heldNames(ctx, pool)
	if err != nil {
		return nil, err
	}
	clients, err := clientsOf(ctx, pool)
	if err != nil {
		return nil, err
	}
	var locks []dblock.SessionLock
	seen := make(map[string]bool)
	for _, k := range known {
		l := dblock.SessionLock{ID: string(k.LockID), Namespace: string(k.Namespace), Key: string(k.LockKey), Session: strconv.FormatInt(k.ConnID, 10)}
		marked := waiterLockName(session.ID(l.ID))
		for _, h := range held {
			if h.ID == marked && h.Session != l.Session {
				l.Waiters++
			}
		}
		seen[l.ID], seen[marked] = true, true
		if k.ConnID != 0 {
			locks = append(locks, l)
		}
	}
	for _, h := range held {
		if !seen[h.ID] {
			locks = append(locks, h)
		}
	}
	for i := range locks {
		c := clients[locks[i].Session]
		locks[i].Label, locks[i].Client = c.user, c.host
	}
	slices.SortStableFunc(locks, func(a, b dblock.SessionLock) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key), cmp.Compare(a.ID, b.ID))
	})
	return locks, nil
}

// Where servers show named locks, if they do. One that lacks the table, or does not let every user
// read it, returns an error.
var namedLocks = []string{
	"SELECT l.OBJECT_NAME, t.PROCESSLIST_ID, l.LOCK_STATUS = 'PENDING' FROM performance_schema.metadata_locks l" +
		" JOIN performance_schema.threads t ON t.THREAD_ID = l.OWNER_THREAD_ID WHERE l.OBJECT_TYPE = 'USER LEVEL LOCK'" +
		" LIMIT " + mysql.AllRows,
	"SELECT l.TABLE_SCHEMA, l.THREAD_ID, FALSE FROM information_schema.METADATA_LOCK_INFO l WHERE l.LOCK_TYPE = 'User lock'" +
		" LIMIT " + mysql.AllRows,
}

// heldNames reads what the server shows.
func heldNames(ctx context.Context, pool *sql.DB) (held []dblock.SessionLock, err error) {
	for _, query := range namedLocks {
		rows, err := pool.QueryContext(ctx, query)
		var refused *mysqldriver.MySQLError
		if errors.As(err, &refused) {
			continue
		}
		if err != nil {
			return nil, mysql.Unavailable(err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var l dblock.SessionLock
			if err := rows.Scan(&l.ID, &l.Session, &l.Waits); err != nil {
				return nil, err
			}
			held = append(held, l)
		}
		if err := rows.Err(); err != nil {
			return nil, mysql.Unavailable(err)
		}
	}
	return held, nil
}

type client struct{ user, host string }

// clientsOf are the sessions that this account may see, by their numbers.
func clientsOf(ctx context.Context, pool *sql.DB) (map[string]client, error) {
	processes, err := mysql.Processes(ctx, pool)
	if err != nil {
		return nil, mysql.Unavailable(err)
	}
	clients := make(map[string]client, len(processes))
	for _, p := range processes {
		clients[strconv.FormatInt(p.ID, 10)] = client{p.User, p.Host}
	}
	return clients, nil
}

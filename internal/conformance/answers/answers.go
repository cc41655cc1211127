package answers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/queue"
)

// These tests replace answers of a real server by errors of any code and by rows that no statement
// returns. Whatever the server says, no goroutine may panic, each call returns a documented error,
// and what was released is free in the end.

const (
	answersDSN  = "DBLOCK_TEST_ANSWERS"
	answersKind = "DBLOCK_TEST_ANSWERS_KIND"

	// TTL is short, so that heartbeats are among the answers. Patience is far longer than what a
	// call may take: a lock that is left behind stays for as long as its process sends heartbeats.
	TTL      = time.Second
	Patience = 15 * time.Second
)

// User is one kind of use. It uses what it opens on x.DSN, passes each error that a caller gets to
// x.Returned, and calls x.Heal before it checks that all works again.
type User struct {
	Name string
	Use  func(ctx context.Context, x *Trial) error
}

// Trial is one use with some answers replaced.
type Trial struct {
	kind  devdb.Kind
	DSN   string  // by way of the proxy
	DB    *sql.DB // past it
	Near  string  // its DSN
	Key   string
	proxy *faultconn.Proxy

	mu     sync.Mutex
	errs   []error
	asked  int
	struck []string

	Crowd int  // callers at once
	Lied  bool // rows are changed: what the server says is held may be lost from sight
}

// Run runs all users in a child process, which a panic ends.
func Run(t *testing.T, kind devdb.Kind, users []User) {
	t.Helper()
	if dsn := os.Getenv(answersDSN); dsn != "" && os.Getenv(answersKind) == string(kind) {
		db := suite.OpenDB(t, kind, dsn)
		for _, user := range users {
			t.Run(user.Name, func(t *testing.T) {
				t.Parallel()
				useAll(t, db, user)
			})
		}
		return
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), suite.Must(os.Executable())(t), "-test.run="+pattern, "-test.timeout=10m")
	cmd.Env = append(os.Environ(), answersDSN+"="+testdb.Migrated(t, kind), answersKind+"="+string(kind))
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

// useAll replaces one answer after the other, and then a fifth of all.
func useAll(t *testing.T, db *suite.DB, user User) {
	all, seed, soak := answersOf(db.Kind), suite.SeedOf(t), os.Getenv(suite.EnvSoak) != ""
	random := rand.New(rand.NewPCG(seed, seed))
	trial := func(name string) *Trial {
		return &Trial{kind: db.Kind, DB: db.DB, Near: db.DSN, Key: user.Name + " " + name, Crowd: 2}
	}
	undisturbed := trial("undisturbed")
	require.NoError(t, undisturbed.run(t, user, nil))
	for _, k := range sample(random, undisturbed.asked+1, soak) {
		a := all[random.IntN(len(all))]
		x := trial(fmt.Sprint(k, a))
		x.Lied = a.Rows != 0
		err := x.run(t, user, func(n int) *faultconn.Answer {
			if n == k {
				return &a
			}
			return nil
		})
		assert.NoError(t, err, "answer %d is %v, to %q", k, a, x.struck)
	}
	rounds := 2
	if soak {
		rounds = 40
	}
	random = rand.New(rand.NewPCG(seed, 1))
	truths := slices.DeleteFunc(slices.Clone(all), func(a faultconn.Answer) bool { return a.Rows != 0 })
	for round := range rounds {
		x, some := trial(fmt.Sprint("storm ", round)), truths
		if x.Crowd, x.Lied = 5, round%2 == 1; x.Lied {
			some = all
		}
		err := x.run(t, user, func(int) *faultconn.Answer { // the proxy calls it with its lock held
			if random.IntN(5) > 0 {
				return nil
			}
			return &some[random.IntN(len(some))]
		})
		assert.NoError(t, err, "in a storm, round %d; the answers to %q", round, x.struck)
	}
}

// sample picks six of the answers, in order: a soak takes each of them several times.
func sample(random *rand.Rand, asked int, soak bool) (at []int) {
	if soak {
		for k := range asked {
			at = append(at, k+1, k+1, k+1, k+1)
		}
		return at
	}
	for _, k := range random.Perm(asked)[:min(asked, 6)] {
		at = append(at, k+1)
	}
	slices.Sort(at)
	return at
}

// run has a user use a proxy of its own.
func (x *Trial) run(t *testing.T, user User, decide func(int) *faultconn.Answer) (err error) {
	t.Helper()
	if x.DSN, x.proxy, err = through(x.kind, x.Near); err != nil {
		return err
	}
	defer x.proxy.Close()
	x.proxy.Decide(decide)
	ctx, cancel := context.WithTimeout(t.Context(), 4*Patience)
	defer cancel()
	err = user.Use(ctx, x)
	x.Heal()
	for _, told := range x.errs {
		if !x.Lied && !isDocumented(told) {
			err = errors.Join(err, fmt.Errorf("not documented: %w", told))
		}
	}
	return err
}

// Returned notes an error that a caller got.
func (x *Trial) Returned(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.errs = append(x.errs, err)
	}
}

// Open opens what is used, also if the first try meets a replaced answer.
func (x *Trial) Open(ctx context.Context, open func(context.Context) error) error {
	err := open(ctx)
	if err == nil {
		return nil
	}
	x.Returned(err)
	x.Heal()
	return x.Again(ctx, "opening", open)
}

// Close closes what was used.
func (x *Trial) Close(ctx context.Context, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	x.Returned(end(ctx))
}

// Heal ends the disturbance.
func (x *Trial) Heal() {
	asked, struck := x.proxy.Disarm()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asked == 0 {
		x.asked = asked
	}
	if x.struck == nil {
		x.struck = struck
	}
}

// Again repeats what must work now: the client may still have broken connections.
func (x *Trial) Again(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for ; ; Pause(ctx, 10*time.Millisecond) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not work any more: %w", what, err)
		}
	}
}

// Free waits until a query counts nothing.
func (x *Trial) Free(ctx context.Context, query string, args ...any) error {
	for began := time.Now(); ; Pause(ctx, 10*time.Millisecond) {
		var n int
		if err := x.DB.QueryRowContext(ctx, query, args...).Scan(&n); err != nil || n == 0 {
			return err
		}
		if time.Since(began) > Patience {
			return fmt.Errorf("%d are still held after %v: %s %q", n, time.Since(began), query, args)
		}
	}
}

func Pause(ctx context.Context, d time.Duration) { suite.SleepFor(ctx, d) }

// through is a DSN by way of a proxy.
func through(kind devdb.Kind, dsn string) (string, *faultconn.Proxy, error) {
	if kind == devdb.Postgres {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return "", nil, err
		}
		at := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
		p, err := faultconn.ProxyPostgres(at)
		if err != nil {
			return "", nil, err
		}
		return strings.Replace(dsn, at, p.Addr(), 1), p, nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", nil, err
	}
	p, err := faultconn.ProxyMySQL(cfg.Addr)
	if err != nil {
		return "", nil, err
	}
	cfg.Addr = p.Addr()
	return cfg.FormatDSN(), p, nil
}

// documented are the errors that calls may return, whatever the server says.
var documented = []error{
	dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrOverloaded, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrTxEnded,
	dblock.ErrClosed, dblock.ErrSchema, dblock.ErrUnsupported, dblock.ErrServerTooOld, dblock.ErrNotAcquired, dblock.ErrLost,
	dblock.ErrFenced, dblock.ErrLimit, dblock.ErrNotHeld, inventory.ErrSoldOut, inventory.ErrRejected, inventory.ErrUnknownSKU,
	inventory.ErrNotFound, inventory.ErrCancelled, inventory.ErrExpired, inventory.ErrAlreadyConfirmed, inventory.ErrKeyReused,
	optimistic.ErrStale, optimistic.ErrNotFound, queue.ErrDuplicate, queue.ErrStillRunning, queue.ErrNoJob, queue.ErrState,
	queue.ErrCancelled,
}

// isDocumented also accepts the server's own error, which an error without a class wraps.
func isDocumented(err error) bool {
	return slices.ContainsFunc(documented, func(class error) bool { return errors.Is(err, class) }) ||
		errors.As(err, new(*pgconn.PgError)) || errors.As(err, new(*mysql.MySQLError))
}

// answersOf are the answers that replace the server's own.
func answersOf(kind devdb.Kind) []faultconn.Answer {
	all := []faultconn.Answer{{Rows: faultconn.None}, {Rows: faultconn.Twice}, {Rows: faultconn.Null}}
	if kind == devdb.Postgres {
		for _, code := range []string{"57014", "40001", "40P01", "55P03", "25P02", "XX000", "0A000", "42P01", "53200", "25006", "X"} {
			all = append(all, faultconn.Answer{Code: code})
		}
		for _, code := range []string{"57P01", "57P05", "53300", "25P03", "25P04", "XX000"} {
			all = append(all, faultconn.Answer{Code: code, Fatal: true})
		}
		for _, code := range []string{"57P01", "57P02", "XX000"} { // a server may end after a commit
			all = append(all, faultconn.Answer{Code: code, Fatal: true, After: true})
		}
		return all
	}
	for _, e := range strings.Fields("1205:HY000 1317:70100 3024:HY000 1969:70100 1290:HY000 1047:08S01 1146:42S02 3058:HY000 1040:08004 1105:HY000 0:00000") {
		code, state, _ := strings.Cut(e, ":")
		all = append(all, faultconn.Answer{Code: code, State: state})
	}
	for _, e := range strings.Fields("1213:40001 1020:HY000 1180:HY000 3101:40000") {
		code, state, _ := strings.Cut(e, ":")
		all = append(all, faultconn.Answer{Code: code, State: state, RollsBack: true})
	}
	all = append(all, faultconn.Answer{Code: "4031", State: "HY000", Fatal: true})
	for _, e := range strings.Fields("1053:08S01 1927:70100 3169:HY000 1317:70100") {
		code, state, _ := strings.Cut(e, ":")
		a := faultconn.Answer{Code: code, State: state, Fatal: code != "1317"}
		after := a
		after.After = true
		all = append(all, a, after)
	}
	return all
}

// IsFree looks for what a live process of the server's tables still has.
func (x *Trial) IsFree(ctx context.Context) (err error) {
	now, mark := "UTC_TIMESTAMP(6)", "?"
	if x.kind == devdb.Postgres {
		now, mark = "clock_timestamp()", "$1"
	}
	for _, table := range []string{"dblock_lease", "dblock_reader", "dblock_permit", "dblock_ticket"} {
		held := "r.handle IS NOT NULL"
		if table == "dblock_ticket" && x.kind != devdb.Postgres { // there a ticket that was served is deleted
			held = "NOT r.served"
		}
		err = errors.Join(err, x.Free(ctx, fmt.Sprintf("SELECT count(*) FROM %s r JOIN dblock_member m ON m.member_id = r.member_id"+
			" WHERE %s AND m.expires_at > %s AND r.lease_key LIKE %s", table, held, now, mark), x.Key+"%"))
	}
	return err
}

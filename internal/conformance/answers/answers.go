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

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/faultwire"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/queue"
)

// These tests replace answers of a real server by errors of any code and by rows that no statement returns. Whatever the
// server says, no goroutine may panic, each call returns a documented error, and what was released is free in the end.

const (
	answersDSN  = "DBLOCK_TEST_ANSWERS"
	answersKind = "DBLOCK_TEST_ANSWERS_KIND"

	// TTL is short, so that heartbeats are among the answers. Patience is far longer than what a call may
	// take: a lock that is left behind stays for as long as its process sends heartbeats.
	TTL      = time.Second
	Patience = 15 * time.Second

	sampleSize = 6 // answers that a short run replaces, one in a trial
)

// User is one kind of use. It uses what it opens on x.dsn, passes each error that a caller gets to x.told, and calls
// x.heal before it checks that all works again.
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
	proxy *faultwire.Proxy

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
	dsn := os.Getenv(answersDSN)
	if dsn != "" && os.Getenv(answersKind) == string(kind) {
		useAll(t, kind, dsn, users)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dsn = testdb.Migrated(t, kind)
	var pattern []string
	for _, part := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+part+"$")
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run="+strings.Join(pattern, "/"), "-test.timeout=10m")
	cmd.Env = append(os.Environ(), answersDSN+"="+dsn, answersKind+"="+string(kind))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func useAll(t *testing.T, kind devdb.Kind, dsn string, users []User) {
	db, err := suite.ConnectOn(kind, dsn, &faultconn.Dialer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	soak := os.Getenv("DBLOCK_SOAK") != ""
	for _, user := range users {
		t.Run(user.Name, func(t *testing.T) {
			t.Parallel()
			all := answersOf(kind)
			seed := suite.SeedOf(t)
			random := rand.New(rand.NewPCG(seed, seed))
			first := trialOf(kind, dsn, db, user.Name+" undisturbed")
			if err := first.run(t, user, nil); err != nil {
				t.Fatalf("undisturbed: %v", err)
			}
			for _, k := range sample(random, first.asked+1, soak) {
				a := all[random.IntN(len(all))]
				x := trialOf(kind, dsn, db, fmt.Sprintf("%s %d %v", user.Name, k, a))
				x.Lied = a.Rows != 0
				err := x.run(t, user, func(n int) *faultwire.Answer {
					if n == k {
						return &a
					}
					return nil
				})
				if err != nil {
					t.Errorf("answer %d is %v, to %q: %v", k, a, x.struck, err)
				}
			}
			useInAStorm(t, trialOf(kind, dsn, db, user.Name+" storm"), user, all, seed)
		})
	}
}

// useInAStorm replaces a fifth of all answers.
func useInAStorm(t *testing.T, x *Trial, user User, all []faultwire.Answer, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	rounds := 2
	if os.Getenv("DBLOCK_SOAK") != "" {
		rounds = 40
	}
	key := x.Key
	for round := range rounds {
		x.Key, x.Crowd, x.Lied = fmt.Sprintf("%s %d", key, round), 5, round%2 == 1
		all := all
		if !x.Lied {
			all = slices.DeleteFunc(slices.Clone(all), func(a faultwire.Answer) bool { return a.Rows != 0 })
		}
		err := x.run(t, user, func(int) *faultwire.Answer { // the proxy calls it with its lock held
			if random.IntN(5) > 0 {
				return nil
			}
			return &all[random.IntN(len(all))]
		})
		if err != nil {
			t.Errorf("in a storm, round %d: %v; the answers to %q", round, err, x.struck)
		}
	}
}

// sample picks some of the answers, in order: a soak takes each of them several times.
func sample(random *rand.Rand, asked int, soak bool) (at []int) {
	if soak {
		for k := range asked {
			at = append(at, k+1, k+1, k+1, k+1)
		}
		return at
	}
	for _, k := range random.Perm(asked)[:min(asked, sampleSize)] {
		at = append(at, k+1)
	}
	slices.Sort(at)
	return at
}

func trialOf(kind devdb.Kind, dsn string, db *sql.DB, key string) *Trial {
	return &Trial{kind: kind, DB: db, Near: dsn, Key: key, Crowd: 2}
}

// run has a user use a proxy of its own.
func (x *Trial) run(t *testing.T, user User, decide func(int) *faultwire.Answer) (err error) {
	t.Helper()
	if x.DSN, x.proxy, err = through(x.kind, x.Near); err != nil {
		return err
	}
	defer x.proxy.Close()
	x.errs, x.asked, x.struck = nil, 0, nil
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

// Told notes what a caller was told.
func (x *Trial) Told(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.errs = append(x.errs, err)
	}
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

// Again repeats what must work now, as connections may still be broken of which the client does not know yet.
func (x *Trial) Again(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not work any more: %w", what, err)
		}
		Pause(ctx, 10*time.Millisecond)
	}
}

// Free waits until a query counts nothing.
func (x *Trial) Free(ctx context.Context, query string, args ...any) error {
	began := time.Now()
	for {
		var n int
		if err := x.DB.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if time.Since(began) > Patience {
			return fmt.Errorf("%d are still held after %v: %s %q", n, time.Since(began), query, args)
		}
		Pause(ctx, 10*time.Millisecond)
	}
}

func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// through is a DSN by way of a proxy.
func through(kind devdb.Kind, dsn string) (string, *faultwire.Proxy, error) {
	if kind == devdb.Postgres {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return "", nil, err
		}
		at := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
		p, err := faultwire.Postgres(at)
		if err != nil {
			return "", nil, err
		}
		return strings.Replace(dsn, at, p.Addr(), 1), p, nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", nil, err
	}
	p, err := faultwire.MySQL(cfg.Addr)
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
	optimistic.ErrConflict, optimistic.ErrNotFound, queue.ErrDuplicate, queue.ErrStillRunning, queue.ErrNoJob, queue.ErrState,
	queue.ErrCancelled,
}

// isDocumented accepts the server's own error, too, which an error without a class of its own wraps.
func isDocumented(err error) bool {
	for _, class := range documented {
		if errors.Is(err, class) {
			return true
		}
	}
	return errors.As(err, new(*pgconn.PgError)) || errors.As(err, new(*mysql.MySQLError))
}

// answersOf are the answers that replace the server's own.
func answersOf(kind devdb.Kind) []faultwire.Answer {
	all := []faultwire.Answer{{Rows: faultwire.None}, {Rows: faultwire.Twice}, {Rows: faultwire.Null}}
	if kind == devdb.Postgres {
		for _, code := range []string{"57014", "40001", "40P01", "55P03", "25P02", "XX000", "0A000", "42P01", "53200", "25006", "X"} {
			all = append(all, faultwire.Answer{Code: code})
		}
		for _, code := range []string{"57P01", "57P05", "53300", "25P03", "25P04", "XX000"} {
			all = append(all, faultwire.Answer{Code: code, Fatal: true})
		}
		for _, code := range []string{"57P01", "57P02", "XX000"} { // a server may end after a commit
			all = append(all, faultwire.Answer{Code: code, Fatal: true, After: true})
		}
		return all
	}
	for _, e := range []struct {
		number, state string
		rollsBack     bool
	}{
		{"1205", "HY000", false}, {"1213", "40001", true}, {"1317", "70100", false}, {"3024", "HY000", false}, {"1969", "70100", false},
		{"1020", "HY000", true}, {"1290", "HY000", false}, {"1047", "08S01", false}, {"1180", "HY000", true}, {"1146", "42S02", false},
		{"3058", "HY000", false}, {"3101", "40000", true}, {"1040", "08004", false}, {"1105", "HY000", false}, {"0", "00000", false},
	} {
		all = append(all, faultwire.Answer{Code: e.number, State: e.state, RollsBack: e.rollsBack})
	}
	all = append(all, faultwire.Answer{Code: "4031", State: "HY000", Fatal: true})
	for _, e := range [][2]string{{"1053", "08S01"}, {"1927", "70100"}, {"3169", "HY000"}, {"1317", "70100"}} {
		fatal := e[0] != "1317"
		all = append(all, faultwire.Answer{Code: e[0], State: e[1], Fatal: fatal}, faultwire.Answer{Code: e[0], State: e[1], Fatal: fatal, After: true})
	}
	return all
}

// IsFree looks for what a live process of the server's tables still has.
func (x *Trial) IsFree(ctx context.Context) error {
	now, mark := "UTC_TIMESTAMP(6)", "?"
	if x.kind == devdb.Postgres {
		now, mark = "clock_timestamp()", "$1"
	}
	var errs []error
	for _, table := range []string{"dblock_lease", "dblock_reader", "dblock_permit", "dblock_ticket"} {
		held := "r.handle IS NOT NULL"
		if table == "dblock_ticket" && x.kind != devdb.Postgres { // there a ticket that was served is deleted
			held = "NOT r.served"
		}
		errs = append(errs, x.Free(ctx, fmt.Sprintf("SELECT count(*) FROM %s r JOIN dblock_member m ON m.member_id = r.member_id"+
			" WHERE %s AND m.expires_at > %s AND r.lease_key LIKE %s", table, held, now, mark), x.Key+"%"))
	}
	return errors.Join(errs...)
}

package conformance

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

	// answersTTL is short, so that heartbeats are among the answers. answersPatience is far longer than what a call may
	// take: a lock that is left behind stays for as long as its process sends heartbeats.
	answersTTL      = time.Second
	answersPatience = 15 * time.Second

	answersSample = 6 // answers that a short run replaces, one in a trial
)

// answersUser is one kind of use. It uses what it opens on x.dsn, passes each error that a caller gets to x.told, and calls
// x.heal before it checks that all works again.
type answersUser struct {
	name string
	use  func(ctx context.Context, x *answersTrial) error
}

// answersTrial is one use with some answers replaced.
type answersTrial struct {
	kind  devdb.Kind
	dsn   string  // by way of the proxy
	db    *sql.DB // past it
	near  string  // its DSN
	key   string
	proxy *faultwire.Proxy

	mu     sync.Mutex
	errs   []error
	asked  int
	struck []string

	crowd int  // callers at once
	lied  bool // rows are changed: what the server says is held may be lost from sight
}

// runAnswers runs all users in a child process, which a panic ends.
func runAnswers(t *testing.T, kind devdb.Kind, users []answersUser) {
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

func useAll(t *testing.T, kind devdb.Kind, dsn string, users []answersUser) {
	db, err := connectOn(kind, dsn, &faultconn.Dialer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	soak := os.Getenv("DBLOCK_SOAK") != ""
	for _, user := range users {
		t.Run(user.name, func(t *testing.T) {
			t.Parallel()
			all := answersOf(kind)
			seed := seedOf(t)
			random := rand.New(rand.NewPCG(seed, seed))
			first := trialOf(kind, dsn, db, user.name+" undisturbed")
			if err := first.run(t, user, nil); err != nil {
				t.Fatalf("undisturbed: %v", err)
			}
			for _, k := range sample(random, first.asked+1, soak) {
				a := all[random.IntN(len(all))]
				x := trialOf(kind, dsn, db, fmt.Sprintf("%s %d %v", user.name, k, a))
				x.lied = a.Rows != 0
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
			useInAStorm(t, trialOf(kind, dsn, db, user.name+" storm"), user, all, seed)
		})
	}
}

// useInAStorm replaces a fifth of all answers.
func useInAStorm(t *testing.T, x *answersTrial, user answersUser, all []faultwire.Answer, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	rounds := 2
	if os.Getenv("DBLOCK_SOAK") != "" {
		rounds = 40
	}
	key := x.key
	for round := range rounds {
		x.key, x.crowd, x.lied = fmt.Sprintf("%s %d", key, round), 5, round%2 == 1
		all := all
		if !x.lied {
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
	for _, k := range random.Perm(asked)[:min(asked, answersSample)] {
		at = append(at, k+1)
	}
	slices.Sort(at)
	return at
}

func trialOf(kind devdb.Kind, dsn string, db *sql.DB, key string) *answersTrial {
	return &answersTrial{kind: kind, db: db, near: dsn, key: key, crowd: 2}
}

// run has a user use a proxy of its own.
func (x *answersTrial) run(t *testing.T, user answersUser, decide func(int) *faultwire.Answer) (err error) {
	t.Helper()
	if x.dsn, x.proxy, err = through(x.kind, x.near); err != nil {
		return err
	}
	defer x.proxy.Close()
	x.errs, x.asked, x.struck = nil, 0, nil
	x.proxy.Decide(decide)
	ctx, cancel := context.WithTimeout(t.Context(), 4*answersPatience)
	defer cancel()
	err = user.use(ctx, x)
	x.heal()
	for _, told := range x.errs {
		if !x.lied && !isDocumented(told) {
			err = errors.Join(err, fmt.Errorf("not documented: %w", told))
		}
	}
	return err
}

// told notes what a caller was told.
func (x *answersTrial) told(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.errs = append(x.errs, err)
	}
}

// heal ends the disturbance.
func (x *answersTrial) heal() {
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

// again repeats what must work now, as connections may still be broken of which the client does not know yet.
func (x *answersTrial) again(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answersPatience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not work any more: %w", what, err)
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// free waits until a query counts nothing.
func (x *answersTrial) free(ctx context.Context, query string, args ...any) error {
	began := time.Now()
	for {
		var n int
		if err := x.db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if time.Since(began) > answersPatience {
			return fmt.Errorf("%d are still held after %v: %s %q", n, time.Since(began), query, args)
		}
		pause(ctx, 10*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
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

package mysqllock

import (
	"context"
	"database/sql"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// rig is a driver on a migrated database of its own.
type rig struct {
	*testing.T
	*leaseDriver
	db  *sql.DB
	dsn string
	ctx context.Context
}

// each runs a test on every server under test, once for each of the settings of its connections.
func each(t *testing.T, settings map[string]string, test func(rig)) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			for name, params := range settings {
				if kind == devdb.MySQL && strings.Contains(params, "snapshot_isolation") {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(newRig(t, testdb.DSN(t, kind), variables(kind, params)))
				})
			}
		})
	}
}

var plain = map[string]string{"plain": ""}

// settings are those of a DSN that could make a difference.
var settings = map[string]string{
	"plain":             "",
	"clientFoundRows":   "clientFoundRows=true",
	"parseTime":         "parseTime=true&loc=Local",
	"interpolateParams": "interpolateParams=true",
	"sql_mode":          "sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES%27",
	"lax":               "sql_mode=%27%27",
	"time_zone":         "time_zone=%27%2B05:45%27",
	"collation":         "collation=latin1_swedish_ci",
	"read committed":    isolation + "=%27READ-COMMITTED%27",
	"serializable":      isolation + "=%27SERIALIZABLE%27",
	"snapshots":         "innodb_snapshot_isolation=ON", // MariaDB alone
}

// races are the settings that decide which statement waits for which.
var races = map[string]string{
	"plain":           "",
	"clientFoundRows": "clientFoundRows=true",
	"read committed":  isolation + "=%27READ-COMMITTED%27",
	"serializable":    isolation + "=%27SERIALIZABLE%27",
	"snapshots":       "innodb_snapshot_isolation=ON", // MariaDB alone
}

// rounds is n, or a quarter of it with other settings than the plain ones: these repeat what is
// tested there.
func (r rig) rounds(n int) int {
	if strings.HasSuffix(r.Name(), "/plain") {
		return n
	}
	return n / 4
}

// isolation stands for the variable's name, which is not the same on both.
const isolation = "ISOLATION"

// halfASecond stands for the setting that ends statements that take longer.
const halfASecond = "HALF_A_SECOND"

func variables(kind devdb.Kind, params string) string {
	names := map[string]string{isolation: "tx_isolation", halfASecond: "max_statement_time=0.5"}
	if kind == devdb.MySQL {
		names = map[string]string{isolation: "transaction_isolation", halfASecond: "max_execution_time=500"}
	}
	for name, of := range names {
		params = strings.ReplaceAll(params, name, of)
	}
	return params
}

func newRig(t *testing.T, dsn, params string) rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	db := openDB(t, dsn+"?"+params)
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	e, backend, err := openDriver(ctx, db, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	return rig{t, e, db, dsn, ctx}
}

// releaseBatch releases a batch of one mode.
func (r rig) releaseBatch(backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	return r.Release(r.ctx, lease.ReleaseBatch{Kind: lease.Kind(backs[0].Mode), Requests: backs})
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (r rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r rig) exec(query string, args ...any) {
	r.Helper()
	_, err := r.db.ExecContext(r.ctx, query, args...)
	r.ok(err)
}

func (r rig) join(label string) lease.By {
	r.Helper()
	by := lease.By{Member: member.NewID()}
	r.ok(r.Register(r.ctx, by.Member, label, time.Hour))
	return by
}

func (r rig) acquire(by lease.By, asks ...lease.AcquireRequest) []lease.AcquireResult {
	r.Helper()
	answers, err := r.leases.acquireExclusive(r.ctx, by, asks)
	r.ok(err)
	return answers
}

// take acquires one key, and expects to get it.
func (r rig) take(by lease.By, a lease.AcquireRequest) lease.ReleaseRequest {
	r.Helper()
	got := r.acquire(by, a)[0]
	if got.Token == 0 {
		r.Fatalf("%q was not granted: %+v", a.Key, got)
	}
	return lease.ReleaseRequest{Key: a.Key, Token: got.Token, Handle: a.Handle}
}

func (r rig) release(backs ...lease.ReleaseRequest) []lease.ReleaseResult {
	r.Helper()
	got, err := r.releaseBatch(backs)
	r.ok(err)
	return got
}

// kill has a member expire an hour and a bit ago.
func (r rig) kill(by lease.By) {
	r.Helper()
	r.exec("UPDATE dblock_member SET expires_at = TIMESTAMPADD(MINUTE, -70, UTC_TIMESTAMP(6)) WHERE member_id = ?", by.Member[:])
}

func ask(key string) lease.AcquireRequest {
	return lease.AcquireRequest{Key: key, Handle: member.NewID()}
}

func TestGrantRefuseRelease(t *testing.T) {
	each(t, settings, func(r rig) {
		us, them := r.join("us"), r.join("them")
		a := ask("k")
		a.Label, a.Data = "l'abel", []byte("da\x00ta")
		before := time.Now().Add(-time.Minute).UnixMicro()
		back := r.take(us, a)
		if back.Token < before || back.Token > time.Now().Add(time.Minute).UnixMicro() {
			r.Errorf("the token %d is not the clock's", back.Token)
		}
		got := r.acquire(them, ask("k"))[0]
		left := got.Holder.Remaining
		got.Holder.Remaining = 0
		want := lease.AcquireResult{Held: true, Holder: lease.Holder{Member: us.Member, Label: "l'abel", Token: back.Token}}
		if !reflect.DeepEqual(got, want) {
			r.Errorf("refused with %+v, want %+v", got, want)
		}
		if left < 59*time.Minute || left > time.Hour {
			r.Errorf("remaining %v of an hour", left)
		}
		listed, err := r.List(r.ctx, "")
		r.ok(err)
		if len(listed) != 1 || listed[0].Key != "k" || listed[0].Handle != a.Handle || listed[0].MemberLabel != "us" || listed[0].Age > time.Minute {
			r.Errorf("listed %+v", listed)
		}
		wrong := back
		wrong.Token--
		if got := r.release(wrong); got[0] != (lease.ReleaseResult{}) {
			r.Errorf("released with a wrong token: %+v", got)
		}
		if got := r.release(back); got[0] != (lease.ReleaseResult{Freed: true}) {
			r.Errorf("released: %+v", got)
		}
		if got := r.release(back); got[0] != (lease.ReleaseResult{}) {
			r.Errorf("released twice: %+v", got)
		}
		r.exec("UPDATE dblock_lease SET token = token + 3600000000")
		again := r.take(them, ask("k"))
		if again.Token != back.Token+3600000001 {
			r.Errorf("the token went from %d to %d", back.Token+3600000000, again.Token)
		}
		again.Token = 0
		if got := r.release(again); !got[0].Freed {
			r.Errorf("released with any token: %+v", got)
		}
	})
}

func TestBatch(t *testing.T) {
	each(t, settings, func(r rig) {
		us, them := r.join("us"), r.join("them")
		held := r.take(them, ask("b"))
		free := r.take(them, ask("d"))
		r.release(free)
		asks := []lease.AcquireRequest{ask("e"), ask("b"), ask("d"), ask("a")}
		asks[0].Detached, asks[0].Hold = true, time.Hour
		asks[2].Label, asks[2].Data = "d", make([]byte, 64<<10)
		got := r.acquire(us, asks...)
		if got[0].Token == 0 || got[2].Token <= free.Token || got[3].Token == 0 {
			r.Errorf("what was free was not granted: %+v", got)
		}
		if got[1].Token != 0 || !got[1].Held || got[1].Holder.Token != held.Token || got[1].Holder.Member != them.Member {
			r.Errorf("what was held: %+v", got[1])
		}
		var data int
		r.ok(r.db.QueryRow("SELECT LENGTH(data) FROM dblock_lease WHERE lease_key = 'd' AND label = 'd'").Scan(&data))
		if data != 64<<10 {
			r.Errorf("%d bytes of data", data)
		}
		back := func(i int) lease.ReleaseRequest {
			return lease.ReleaseRequest{Key: asks[i].Key, Token: got[i].Token, Handle: asks[i].Handle}
		}
		freed := r.release(back(0), lease.ReleaseRequest{Key: "b", Handle: asks[1].Handle}, back(3))
		want := []lease.ReleaseResult{{Freed: true}, {}, {Freed: true}}
		if !slices.Equal(freed, want) {
			r.Errorf("released %+v, want %+v", freed, want)
		}
		if freed := r.release(back(2), held); !freed[0].Freed || !freed[1].Freed {
			r.Errorf("released %+v", freed)
		}
	})
}

// TestABatchEndsNoUncertainRelease releases what may yet be granted beside what is held. The
// statement counts one row: it does not say which. An acquisition that is still under way must not
// count as released.
func TestABatchEndsNoUncertainRelease(t *testing.T) {
	each(t, settings, func(r rig) {
		us := r.join("us")
		free := r.take(us, ask("free"))
		r.release(free)
		late := ask("free")
		held := r.take(us, ask("held"))
		uncertain := lease.ReleaseRequest{Key: "free", Handle: late.Handle}
		if got := r.release(held, uncertain); !got[0].Freed || got[1] != (lease.ReleaseResult{}) {
			r.Errorf("released %+v", got)
		}
		if got := r.acquire(us, late)[0]; got.Token == 0 {
			r.Errorf("not granted: %+v", got)
		}
		held = r.take(us, ask("held"))
		held.Token = 0
		if got := r.release(held, uncertain); !got[0].Freed || !got[1].Freed {
			r.Errorf("released both, which is certain: %+v", got)
		}
		read, entered := ask("read"), ask("read")
		token := r.enterShared(us, entered)[0].Token
		backs := []lease.ReleaseRequest{
			{Key: "read", Handle: entered.Handle, Token: token, Mode: dblock.ModeShared},
			{Key: "read", Handle: read.Handle, Mode: dblock.ModeShared},
		}
		if got := r.release(backs...); !got[0].Freed || got[1] != (lease.ReleaseResult{}) {
			r.Errorf("released readers %+v", got)
		}
	})
}

func TestABeatTooOldGrantsNothing(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		for n := int64(1); n <= 2; n++ {
			beat, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour)
			r.ok(err)
			if beat != n || !alive {
				r.Fatalf("beat %d, alive %v", beat, alive)
			}
		}
		for _, key := range []string{"k", "k"} { // there is no row, and none is made
			if got := r.acquire(us, ask(key))[0]; !reflect.DeepEqual(got, lease.AcquireResult{MemberGone: true}) {
				r.Errorf("after two beats more: %+v", got)
			}
		}
		us.Heartbeat = 1
		r.take(us, ask("k"))
		us.Heartbeat = 2
		r.kill(us)
		if got := r.acquire(us, ask("k"))[0]; got.Token != 0 || !got.MemberGone {
			r.Errorf("after it expired: %+v", got)
		}
		if got := r.acquire(us, ask("other"))[0]; !reflect.DeepEqual(got, lease.AcquireResult{MemberGone: true}) {
			r.Errorf("after it expired: %+v", got)
		}
		if _, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour); err != nil || alive {
			r.Errorf("a heartbeat revived it: %v %v", alive, err)
		}
		if _, alive, err := r.Heartbeat(r.ctx, member.NewID(), time.Hour); err != nil || alive {
			r.Errorf("a heartbeat of nobody: %v %v", alive, err)
		}
	})
}

// TestAHeartbeatAfterAStepBack: the server's clock steps back by half an hour, which is as if the
// member's end moved forward. A heartbeat is worth a TTL from now, and no more.
func TestAHeartbeatAfterAStepBack(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		r.exec("UPDATE dblock_member SET expires_at = expires_at + INTERVAL 30 MINUTE")
		_, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour)
		r.ok(err)
		var left int
		r.ok(r.db.QueryRowContext(r.ctx, "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), expires_at) FROM dblock_member").Scan(&left))
		if !alive || left > 3600 {
			r.Errorf("alive: %v, for %d s more", alive, left)
		}
	})
}

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// fake is a scenario that does nothing, fast, until what is called before a round fails.
func fake(name string, before func(env *Env, round int) error) Scenario {
	return Scenario{Name: name, About: "does nothing", Open: func(_ context.Context, env *Env) (Workload, error) {
		return fakeLoad{env, before}, nil
	}}
}

type fakeLoad struct {
	env    *Env
	before func(env *Env, round int) error
}

func (f fakeLoad) Close() error { return nil }

func (f fakeLoad) Round(_ context.Context, n int) (Round, error) {
	return each(func(context.Context) (int, error) {
		time.Sleep(time.Millisecond)
		return 1, nil
	}), f.before(f.env, n)
}

func fine(*Env, int) error { return nil }

// short runs scenarios for a moment on the tests' server of an engine.
func short(t *testing.T, kind devdb.Kind, f Flags, all ...Scenario) (out, log string, err error) {
	t.Helper()
	return shortOn(t, kind, f, func(ctx context.Context, kind devdb.Kind, _ devdb.Options) (*devdb.Server, error) {
		return devdb.Attach(ctx, kind, testdb.Server(t, kind).AdminDSN(), "testdb", nil)
	}, all...)
}

// shortOn runs scenarios for a moment on a server that is started for them.
func shortOn(t *testing.T, kind devdb.Kind, f Flags, start startServer, all ...Scenario) (out, log string, err error) {
	t.Helper()
	if len(f.Scenarios) == 0 {
		for _, s := range all {
			f.Scenarios = append(f.Scenarios, s.Name)
		}
	}
	f.Engine = []string{string(kind)}
	f.Clients, f.Time, f.Rounds = max(f.Clients, 4), Seconds(50*time.Millisecond), max(f.Rounds, 3)
	if err := f.Check(all); err != nil {
		t.Fatal(err)
	}
	var o, l strings.Builder
	err = run(t.Context(), f, all, &o, &l, start)
	return o.String(), l.String(), err
}

func parse(t *testing.T, out string) (records []record) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &records); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return records
}

func TestEveryRoundOfEveryScenario(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			out, _, err := shortOn(t, kind, Flags{JSON: true, Warmup: Seconds(time.Millisecond), Rounds: 4}, devdb.Start, fake("a/one", fine), fake("a/two", fine))
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]int{}
			for _, r := range parse(t, out) {
				seen[r.Scenario]++
				switch {
				case r.Engine != string(kind) || r.Server == "" || r.Clients != 4 || r.Conns != 4:
					t.Errorf("%+v", r)
				case r.Round != seen[r.Scenario] || r.OK < 4 || r.PerSecond <= 0 || r.Latency.P50 < 1 || r.Failed == nil:
					t.Errorf("%+v", r)
				case r.RatioToFirst == nil || r.P99Ratio == nil, r.Scenario == "a/one" && (*r.RatioToFirst != 1 || *r.P99Ratio != 1):
					t.Errorf("%+v", r)
				}
			}
			if seen["a/one"] != 4 || seen["a/two"] != 4 {
				t.Errorf("rounds: %v", seen)
			}
		})
	}
}

// TestAFailingScenario: what was finished until then is reported, and the error says what failed.
func TestAFailingScenario(t *testing.T) {
	t.Parallel()
	broken := errors.New("it broke")
	inThird := func(_ *Env, n int) error {
		if n == 2 {
			return broken
		}
		return nil
	}
	kind := testdb.Engines()[0]
	all := []Scenario{fake("a/fine", fine), fake("a/breaks", inThird)}
	out, _, err := short(t, kind, Flags{JSON: true, Rounds: 5}, all...)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "a/breaks, round 3") {
		t.Errorf("got %v", err)
	}
	rounds := map[string]int{}
	for _, r := range parse(t, out) {
		rounds[r.Scenario]++
	}
	if rounds["a/fine"] != 3 || rounds["a/breaks"] != 2 {
		t.Errorf("reported: %v", rounds)
	}
	out, _, err = short(t, kind, Flags{Rounds: 5}, all...)
	if !errors.Is(err, broken) || !strings.Contains(out, "scenario: a/breaks") || !strings.Contains(out, "2 rounds") {
		t.Errorf("%v after %s", err, out)
	}
}

// TestFaultsOfAKilledServer runs real sales on a server that dies in the second round.
func TestFaultsOfAKilledServer(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			var server *devdb.Server
			killer := fake("a/killer", func(env *Env, n int) error {
				server = env.Server
				if n == 1 {
					time.AfterFunc(20*time.Millisecond, func() { _ = env.Server.Kill() })
				}
				return nil
			})
			merge, err := find(Scenarios(), "seckill/merge")
			if err != nil {
				t.Fatal(err)
			}
			out, _, err := shortOn(t, kind, Flags{JSON: true, Rounds: 50}, devdb.Start, killer, merge[0])
			if err == nil {
				t.Fatal("nobody noticed")
			}
			records := parse(t, out)
			if len(records) < 2 || records[0].OK == 0 {
				t.Errorf("reported: %+v", records)
			}
			if server.PID() != 0 {
				t.Errorf("process %d is left", server.PID())
			}
			if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its folder is left: %v", err)
			}
		})
	}
}

// TestAWrongResultIsNone: sales that were reported to callers and are not in the books end the run.
func TestAWrongResultIsNone(t *testing.T) {
	t.Parallel()
	liar := SaleScenario("a/liar", "sells nothing", nil, nil, func(context.Context, *Env) (Seller, error) { return liar{}, nil })
	_, _, err := short(t, testdb.Engines()[0], Flags{}, liar)
	if err == nil || !strings.Contains(err.Error(), "the books hold 0") {
		t.Errorf("got %v", err)
	}
}

type liar struct{}

func (liar) Stock(context.Context, string, int64) error         { return nil }
func (liar) Sell(context.Context, string, string, string) error { return nil }
func (liar) Sold(context.Context, string) (int64, error)        { return 0, nil }
func (liar) Close() error                                       { return nil }

// TestALockThatIsNone: a Locker that lets two in is found out.
func TestALockThatIsNone(t *testing.T) {
	t.Parallel()
	all := LockScenarios("none", "locks nothing", nil, nil, func(context.Context, *Env) (Locker, error) { return openDoor{}, nil })
	_, _, err := short(t, testdb.Engines()[0], Flags{Scenarios: []string{"hotlock/none"}, Clients: 64}, all...)
	if !errors.Is(err, errTwoHolders) {
		t.Errorf("got %v", err)
	}
	if _, _, err := short(t, testdb.Engines()[0], Flags{Scenarios: []string{"lock/none"}}, all...); err != nil {
		t.Errorf("a key each: %v", err)
	}
}

type openDoor struct{}

func (openDoor) Lock(context.Context, string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}
func (openDoor) Close() error { return nil }

func TestTheBestNumberOfConnections(t *testing.T) {
	t.Parallel()
	slow := Scenario{Name: "a/slow", About: "is best with 3", Conns: []int{2, 3, 5}, Open: func(_ context.Context, env *Env) (Workload, error) {
		if env.Conns == 3 {
			return busy{units: 10_000}, nil
		}
		return busy{units: 1}, nil
	}}
	out, _, err := short(t, testdb.Engines()[0], Flags{}, slow)
	if err != nil || !strings.Contains(out, "number of connections: 3 (the best of 2: ") {
		t.Errorf("%v after %s", err, out)
	}
	out, _, err = short(t, testdb.Engines()[0], Flags{Conns: 5}, slow)
	if err != nil || !strings.Contains(out, "number of connections: 5\n") {
		t.Errorf("%v after %s", err, out)
	}
}

// busy does so many units a call.
type busy struct{ units int }

func (busy) Close() error { return nil }

func (b busy) Round(context.Context, int) (Round, error) {
	return each(func(context.Context) (int, error) { time.Sleep(time.Millisecond); return b.units, nil }), nil
}

// TestAScenarioThatTheEngineLacks is refused where both were named, and left out by a pattern.
func TestAScenarioThatTheEngineLacks(t *testing.T) {
	t.Parallel()
	kind := testdb.Engines()[0]
	foreign := fake("a/foreign", fine)
	foreign.Engines = []devdb.Kind{"oracle"}
	all := []Scenario{fake("a/one", fine), foreign}
	if _, _, err := short(t, kind, Flags{}, all...); err == nil || !strings.Contains(err.Error(), "a/foreign does not run on") {
		t.Errorf("got %v", err)
	}
	out, log, err := short(t, kind, Flags{Scenarios: []string{"a/*"}}, all...)
	if err != nil || !strings.Contains(log, "a/foreign runs on oracle only: left out") || !strings.Contains(out, "scenario: a/one") {
		t.Errorf("%v, log %s", err, log)
	}
}

func TestMoreConnectionsThanTheServerTakes(t *testing.T) {
	t.Parallel()
	_, _, err := short(t, testdb.Engines()[0], Flags{Conns: 5000}, fake("a/one", fine))
	if err == nil || !strings.Contains(err.Error(), "5000 connections") || !strings.Contains(err.Error(), "--conns") {
		t.Errorf("got %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "some.sql")
	if err := os.WriteFile(script, []byte("SELECT 1;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := Flags{Scenarios: []string{"seckill/merge"}, Clients: 1, Time: Seconds(time.Second), Rounds: 1}
	if err := good.Check(Scenarios()); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Flags){
		`did you mean "seckill/merge"`: func(f *Flags) { f.Scenarios = []string{"seckil/merg"} },
		`no scenario fits "x/*"`:       func(f *Flags) { f.Scenarios = []string{"x/*"} },
		"named twice":                  func(f *Flags) { f.Scenarios = []string{"seckill/merge", "seckill/merge"} },
		"--clients: 0":                 func(f *Flags) { f.Clients = 0 },
		"--conns: -1":                  func(f *Flags) { f.Conns = -1 },
		"--threads: -1":                func(f *Flags) { f.Threads = -1 },
		"--time: -5s":                  func(f *Flags) { f.Time = Seconds(-5 * time.Second) },
		"--warmup: -1s":                func(f *Flags) { f.Warmup = Seconds(-time.Second) },
		"--rounds: 0":                  func(f *Flags) { f.Rounds = 0 },
		"--progress: -1s":              func(f *Flags) { f.Progress = Seconds(-time.Second) },
		"--jobs: -1":                   func(f *Flags) { f.Jobs = -1 },
		"--rate: -1":                   func(f *Flags) { f.Rate = -1 },
		`there is no "oracle"`:         func(f *Flags) { f.Engine = []string{"oracle"} },
		"no such file":                 func(f *Flags) { f.File = "/nowhere.sql" },
		"--setup: open /nowhere.sql":   func(f *Flags) { f.File, f.Setup = script, "/nowhere.sql" },
		"go with --file":               func(f *Flags) { f.Setup = script },
		"which scenario":               func(f *Flags) { f.Scenarios = nil },
		"give its file with --file":    func(f *Flags) { f.Scenarios = []string{"pgbench"} },
	} {
		f := good
		spoil(&f)
		if err := f.Check(Scenarios()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something with %q", err, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"5": 5 * time.Second, "0.5": time.Second / 2, "1m30s": 90 * time.Second, "20ms": 20 * time.Millisecond} {
		var s Seconds
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want {
			t.Errorf("%q: %v, %v", text, time.Duration(s), err)
		}
	}
	if err := new(Seconds).UnmarshalText([]byte("soon")); err == nil {
		t.Error("soon is taken for a duration")
	}
}

func TestListNamesEveryScenario(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := Run(t.Context(), Flags{List: true}, Scenarios(), &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, s := range Scenarios() {
		if s.About == "" || strings.Count("\n"+out.String(), fmt.Sprintf("\n%s ", s.Name)) != 1 {
			t.Errorf("%s is not in the list, or without a word:\n%s", s.Name, out.String())
		}
	}
}

package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

// envMigrant has the test binary migrate until it is killed: up and down in turn, or up alone.
const (
	envMigrant = "DBLOCK_TEST_MIGRANT" // what it does
	upAndDown  = "up and down"
	upAlone    = "up"
)

func migrant() int {
	engine := migrations.Engine(os.Getenv(envRacer))
	db, err := openDB(engine, os.Getenv(envDSN))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	fmt.Println("begun")
	for {
		if os.Getenv(envMigrant) == upAndDown {
			if _, err := migrations.DownTo(ctx, db, rand.Int64N(schema.Version), migrations.Options{}); err != nil {
				fmt.Println("down:", err)
				return 1
			}
		}
		if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil {
			fmt.Println("up:", err)
			return 1
		}
		if os.Getenv(envMigrant) == upAlone {
			return 0
		}
	}
}

// process is a child that has begun.
type process struct {
	cmd *exec.Cmd
	out *bytes.Buffer
}

// migrant starts one.
func (e env) migrant(what string) *process {
	e.Helper()
	self, err := os.Executable()
	e.must(err)
	p := &process{cmd: exec.CommandContext(e.Context(), self), out: new(bytes.Buffer)}
	p.cmd.Env = append(os.Environ(), envMigrant+"="+what, envRacer+"="+string(e.engine), envDSN+"="+e.dsn)
	p.cmd.Stderr = p.out
	begun, err := p.cmd.StdoutPipe()
	e.must(err)
	e.must(p.cmd.Start())
	var word [6]byte
	if _, err := begun.Read(word[:]); err != nil {
		e.Fatalf("a process that migrates did not begin: %v", err)
	}
	go func() { _, _ = p.out.ReadFrom(begun) }()
	return p
}

// kill ends the process as the system does; it returns what the process said if it had ended by
// itself.
func (p *process) kill() string {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
	if p.cmd.ProcessState.Exited() && !p.cmd.ProcessState.Success() {
		return p.out.String()
	}
	return ""
}

// rounds is how many a test goes through: 200 under DBLOCK_SOAK.
func rounds(usual int) int {
	if os.Getenv("DBLOCK_SOAK") != "" {
		return 200
	}
	return usual
}

// TestFaultsUpBesideDownAndKills: two processes migrate up and down, are killed anywhere, and one
// Up makes the tables whole.
func TestFaultsUpBesideDownAndKills(t *testing.T) {
	each(t, func(e env) {
		began := time.Now()
		e.up(migrations.Options{})
		fresh := e.dump()
		e.up(migrations.Options{})
		longest := max(2*time.Since(began), 50*time.Millisecond)
		for round := range rounds(5) {
			a, b := e.migrant(upAndDown), e.migrant(upAndDown)
			time.Sleep(rand.N(longest)) // anywhere
			for _, p := range []*process{a, b} {
				if said := p.kill(); said != "" {
					e.Fatalf("round %d: a process ended by itself: %s", round, said)
				}
			}
			if _, err := migrations.Up(e.Context(), e.db, migrations.Options{}); err != nil {
				e.Fatalf("round %d: %v", round, err)
			}
			e.wantDump(fmt.Sprintf("round %d", round), fresh)
			e.wantVersions(schema.VersionTable, everyVersion())
			if e.Failed() {
				return
			}
		}
	})
}

// TestFaultsEightBesideAKilledOne: they find what it has left, also while the server still works on
// its last statement.
func TestFaultsEightBesideAKilledOne(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		fresh := e.dump()
		for round := range rounds(2) {
			_, err := migrations.DownTo(e.Context(), e.db, 0, migrations.Options{})
			e.must(err)
			p := e.migrant(upAlone)
			time.Sleep(rand.N(150 * time.Millisecond)) // anywhere
			if said := p.kill(); said != "" {
				e.Fatalf("round %d: the first one ended by itself: %s", round, said)
			}
			if failures := e.runRacers(); len(failures) > 0 {
				e.Fatalf("round %d: %d of %d failed: %v", round, len(failures), racers, failures)
			}
			e.wantDump(fmt.Sprintf("round %d", round), fresh)
		}
	})
}

// A server runs a statement to its end although its client is gone. The next run waits for it.
func TestFaultsADownThatWasKilled(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		fresh := e.dump()
		for _, statement := range []int{1, 2, 3, 5, 8, 13, 20} {
			db, cut := e.cutAt(statement)
			_, err := migrations.DownTo(e.Context(), db, 0, migrations.Options{})
			if err == nil || !cut() {
				e.Fatalf("down through a connection that ends before statement %d: %v", statement, err)
			}
			list := e.status(migrations.Options{})
			e.up(migrations.Options{})
			e.wantDump(fmt.Sprintf("up after a down that ended before its statement %d and left %+v", statement, list), fresh)
		}
		// And so does the next Down.
		db, _ := e.cutAt(4)
		_, err := migrations.DownTo(e.Context(), db, 0, migrations.Options{})
		if err == nil {
			e.Error("down through a connection that ends has no error")
		}
		_, err = migrations.DownTo(e.Context(), e.db, 0, migrations.Options{})
		e.must(err)
		e.wantTables("", []string{schema.VersionTable})
	})
}

// cutAt opens the database by connections that end before the n-th DROP.
func (e env) cutAt(n int) (db *sql.DB, cut func() bool) {
	e.Helper()
	c := &cutter{left: n}
	db, err := openThrough(e.engine, e.dsn, c.wrap)
	e.must(err)
	e.Cleanup(func() { _ = db.Close() })
	return db, func() bool { return c.left <= 0 }
}

func isDrop(b []byte) bool { return strings.Contains(string(b), "DROP ") }

//go:build unix && !solaris && !aix

package devdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
)

// envChild turns this test binary into a program that starts a server of that kind, prints its
// process id and folder, and waits to be killed.
const envChild = "DEVDB_TEST_CHILD"

func TestMain(m *testing.M) {
	if kind := os.Getenv(envChild); kind != "" {
		child(Kind(kind))
	}
	if err := mysql.SetLogger(&mysql.NopLogger{}); err != nil { // the tests kill servers
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func child(kind Kind) {
	s, err := Start(context.Background(), kind, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if _, _, err := s.CreateDatabase(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.PID(), s.Dir())
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent's pipe
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// parent is a running child of the test: the parent of a server.
type parent struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	server int
	dir    string
}

// startParent runs the test binary again with tmp as its temporary folder, as that user.
func startParent(t *testing.T, kind Kind, binary, tmp string, as *syscall.Credential) *parent {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), envChild+"="+string(kind), "TMPDIR="+tmp, "HOME="+tmp,
		envServersDir+"="+serversDir()) // the default would be that user's
	cmd.Dir = tmp
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p := &parent{cmd: cmd, stdin: in}
	if _, err := fmt.Fscan(out, &p.server, &p.dir); err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the child did not start a server: %v", errors.Join(err, cmd.Wait()))
	}
	return p
}

// publicDir is a temporary folder that every user may pass through; t.TempDir is the owner's alone.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dblock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// startable returns the kinds of server that this machine can start, of those that the run is
// about: without DBLOCK_TEST_ENGINES these are Postgres and one of MariaDB and MySQL.
func startable(t *testing.T) []Kind {
	t.Helper()
	var kinds []Kind
	for _, kind := range []Kind{Postgres, MariaDB, MySQL} {
		list := os.Getenv("DBLOCK_TEST_ENGINES")
		if list != "" && !strings.Contains(list, string(kind)) || list == "" && kind == MySQL && slices.Contains(kinds, MariaDB) {
			continue
		}
		bin, err := findBinaries(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		if bin != nil {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		t.Fatal(errors.Join(&NotFoundError{Postgres}, &NotFoundError{MariaDB}))
	}
	return kinds
}

func eachOf(t *testing.T, kinds []Kind, fn func(t *testing.T, kind Kind)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			fn(t, kind)
		})
	}
}

// start starts a local server, whatever the environment says, and closes it when the test ends.
func start(t *testing.T, kind Kind, durable bool) *Server {
	t.Helper()
	bin, err := findBinaries(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	if bin == nil {
		t.Fatal(&NotFoundError{Kind: kind})
	}
	s, err := startLocal(t.Context(), bin, durable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Close left the folder %s: %v", filepath.Base(s.Dir()), err)
		}
	})
	return s
}

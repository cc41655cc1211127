package devdb

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

type postgresEngine struct{}

func (postgresEngine) initialize(ctx context.Context, l *local) error {
	pwfile := l.dir.join("password")
	if err := os.WriteFile(pwfile, []byte(l.password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(pwfile)
	if err := giveToServer(pwfile); err != nil {
		return err
	}
	args := []string{
		"-D", l.dir.join(dataName), "-U", "postgres", "-A", "scram-sha-256", "--pwfile", pwfile,
		"-E", "UTF8", "--locale=C", "-N", "--no-instructions",
	}
	if !l.durable {
		args = append(args, "--wal-segsize=1") // a smaller folder
	}
	return l.install(ctx, l.bin.install, args)
}

func (postgresEngine) args(l *local) []string {
	args := []string{
		"-D", l.dir.join(dataName), "-h", "127.0.0.1", "-p", strconv.Itoa(l.port),
		"-k", "", // no Unix socket: it would lie outside of our folder's rights
		"-c", "max_connections=1000",
		"-c", "dynamic_shared_memory_type=mmap", // in the folder, so that kill -9 leaves nothing in /dev/shm
	}
	if runtime.GOOS == "linux" { // not all others can
		args = append(args, "-c", "client_connection_check_interval=1s")
	}
	if l.durable {
		return append(args, "-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on",
			"-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB")
	}
	return append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
		"-c", "shared_buffers=64MB", "-c", "jit=off")
}

func (postgresEngine) adminDSN(l *local) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword("postgres", l.password),
		Host:   net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)),
		Path:   "/postgres",
	}
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// ready asks for the data folder too: if the port was taken in the last moment, another server
// answers.
func (postgresEngine) ready(ctx context.Context, l *local, s *Server) error {
	return s.withPostgres(ctx, func(c *pgx.Conn) error {
		var dir string
		if err := c.QueryRow(ctx, "SHOW data_directory").Scan(&dir); err != nil {
			return err
		}
		return sameFolder(dir, l.dir.join(dataName))
	})
}

// onParentDeath is a fast shutdown: after a kill -9 of the postmaster its children would have to
// notice by themselves.
func (postgresEngine) onParentDeath() syscall.Signal { return syscall.SIGINT }

// stop is an immediate shutdown: the data is thrown away, and so is the shared memory, which a
// kill -9 would leave.
func (postgresEngine) stop(l *local) error { return l.proc.stop(syscall.SIGQUIT, 10*time.Second) }

// cleanUp finds the segment's number in the last but one line of postmaster.pid: "key id".
func (postgresEngine) cleanUp(l *local) {
	b, err := os.ReadFile(filepath.Join(l.dir.join(dataName), "postmaster.pid"))
	if err != nil {
		return // it went down orderly
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 7 {
		return
	}
	if f := strings.Fields(lines[6]); len(f) == 2 {
		if id, err := strconv.Atoi(f[1]); err == nil {
			removeSegment(id)
		}
	}
}

func sameFolder(have, want string) error {
	if strings.TrimSuffix(have, "/") == want {
		return nil
	}
	a, err1 := os.Stat(have)
	b, err2 := os.Stat(want)
	if err1 == nil && err2 == nil && os.SameFile(a, b) {
		return nil
	}
	return fmt.Errorf("%w: the server there uses the data folder %s", errPortTaken, have)
}

package devdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	dataName = "data"
	logName  = "log"

	// A first start may have to recover from a crash on a busy disk.
	readyTimeout = 2 * time.Minute

	// Whatever accepts the connection and then says nothing is not our server, or is very busy.
	attemptTimeout = 10 * time.Second
)

// local is a server that runs from a folder of ours.
type local struct {
	bin      *binaries
	engine   engine
	durable  bool
	more     []string // arguments
	dir      *folder
	port     int
	password string

	mu   sync.Mutex // Kill, Restart and Close may come from different goroutines
	proc *process
}

// engine is what differs between products: how to make a data folder and how to run on it.
type engine interface {
	initialize(ctx context.Context, l *local) error
	args(l *local) []string
	adminDSN(l *local) string
	ready(ctx context.Context, l *local, s *Server) error // nil when it is our server that answers
	onParentDeath() syscall.Signal
	stop(l *local) error
	cleanUp(l *local) // after a kill: what the server left outside of its folder
}

func startLocal(ctx context.Context, bin *binaries, durable bool, args ...string) (*Server, error) {
	sweep()
	l := &local{bin: bin, engine: engineOf(bin.kind), durable: durable, more: args}
	return l.launch(ctx, fmt.Sprintf("the %s server", bin.kind), filepath.Dir(bin.daemon))
}

// launch starts what is called so, in a folder of its own.
func (l *local) launch(ctx context.Context, what, source string) (_ *Server, err error) {
	if l.dir, err = makeFolder(); err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	s := &Server{Kind: l.bin.kind, Source: source, local: l}
	if err := l.startNew(ctx, s); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s from %s: %w", what, source, err), l.close())
	}
	return s, nil
}

func engineOf(kind Kind) engine {
	if kind == Postgres {
		return postgresEngine{}
	}
	return mysqlEngine{}
}

// disposable is the end of a server whose data is thrown away and which leaves nothing outside of
// its folder, so that no shutdown needs to be waited for.
type disposable struct{}

func (disposable) onParentDeath() syscall.Signal { return syscall.SIGKILL }
func (disposable) stop(l *local) error           { return l.proc.kill() }
func (disposable) cleanUp(*local)                {}

func (l *local) startNew(ctx context.Context, s *Server) error {
	var err error
	if l.password, err = newPassword(); err != nil {
		return err
	}
	data := l.dir.join(dataName)
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := giveToServer(data); err != nil {
		return err
	}
	if err := l.engine.initialize(ctx, l); err != nil {
		return err
	}
	for range 10 {
		if l.port, err = freePort(); err != nil {
			return err
		}
		s.admin = l.engine.adminDSN(l)
		if err = l.run(ctx, s); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return err
	}
	version, err := s.askVersion(ctx)
	s.Version = version.number
	return err
}

var errPortTaken = errors.New("another process took the port")

// run starts the server on its port and data, and returns when it answers.
func (l *local) run(ctx context.Context, s *Server) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	log, err := os.OpenFile(l.dir.join(logName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	l.proc, err = startProcess(serverCommand(l.dir, log, l.bin.daemon, append(l.engine.args(l), l.more...), l.engine.onParentDeath()))
	if err != nil {
		l.proc = nil
		return hintReadable(err)
	}
	if err := os.WriteFile(l.dir.join(pidName), fmt.Appendln(nil, l.proc.pid), 0o600); err != nil {
		return errors.Join(err, l.proc.kill())
	}
	if err := l.awaitReady(ctx, s); err != nil {
		return errors.Join(err, l.proc.kill())
	}
	return nil
}

func (l *local) awaitReady(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := l.attempt(ctx, s)
		if err == nil {
			return nil
		}
		select {
		case <-l.proc.done:
			return l.endedEarly()
		case <-ctx.Done():
			return fmt.Errorf("it did not answer in time (%w); the last answer was: %w\nits log ends with:\n%s",
				ctx.Err(), err, logTail(l.dir.join(logName)))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (l *local) attempt(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return l.engine.ready(ctx, l, s)
}

func (l *local) endedEarly() error {
	tail := logTail(l.dir.join(logName))
	if strings.Contains(tail, "ddress already in use") {
		return fmt.Errorf("%w %d", errPortTaken, l.port)
	}
	return fmt.Errorf("it ended at once (%v); its log ends with:\n%s", l.proc.err, tail)
}

// runTool runs an installer to its end, in the server's environment.
func (l *local) runTool(ctx context.Context, path string, args []string) error {
	log, err := os.OpenFile(l.dir.join(logName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := startProcess(serverCommand(l.dir, log, path, args, syscall.SIGKILL))
	if err != nil {
		return hintReadable(err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s was cut off: %w", filepath.Base(path), ctx.Err()), p.kill())
	}
	if p.err != nil {
		return fmt.Errorf("%s failed (%w); its output ends with:\n%s",
			filepath.Base(path), p.err, logTail(l.dir.join(logName)))
	}
	return nil
}

func (l *local) kill() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proc == nil {
		return nil
	}
	err := l.proc.kill()
	if err == nil {
		l.proc = nil
	}
	return err
}

func (l *local) withRunning(fn func(pid int) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proc == nil || l.proc.ended() {
		return fmt.Errorf("the %s server on port %d does not run", l.bin.kind, l.port)
	}
	return fn(l.proc.pid)
}

func (l *local) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.proc != nil {
		thawTree(l.proc.pid) // a frozen server would not receive the signal
		err = l.engine.stop(l)
		l.proc = nil
	}
	l.engine.cleanUp(l)
	return errors.Join(err, l.dir.remove())
}

// freePort picks below 32768, where Linux starts to hand out ports to clients: a client socket
// could otherwise sit on the port when the server is restarted on it.
func freePort() (int, error) {
	const low, high = 20000, 32768
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(high-low))
		if err != nil {
			return 0, err
		}
		port := low + int(n.Int64())
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 between %d and %d", low, high)
}

func hintReadable(err error) error {
	if errors.Is(err, os.ErrPermission) && os.Geteuid() == 0 {
		return fmt.Errorf("%w: root starts servers as another user, which must be able to read and run the binaries", err)
	}
	return err
}

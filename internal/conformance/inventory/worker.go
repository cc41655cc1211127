package inventory

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// A process that does ops for its test, which it reads line by line: many at once, as they come.

const sellerOptions = "DBLOCK_TEST_SELLER_OPTIONS" // those of its Store; none: it is a seller

type asked struct {
	N int
	D op
}

type answered struct {
	N int
	R reply
}

// doWhatIsAsked is what such a process does until its input ends. Its driver says nothing of connections that are cut.
func (e Inventory) doWhatIsAsked(dsn, options string) error {
	var o inventory.Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	store, closePool, err := e.OpenOn(context.Background(), dsn, &faultconn.Dialer{}, o)
	for errors.Is(err, dblock.ErrUnavailable) { // the server is down, too: it will be back
		time.Sleep(10 * time.Millisecond)
		store, closePool, err = e.OpenOn(context.Background(), dsn, &faultconn.Dialer{}, o)
	}
	if err != nil {
		return err
	}
	defer closePool()
	var writing sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var deeds sync.WaitGroup
	defer deeds.Wait()
	for in := json.NewDecoder(os.Stdin); ; {
		var a asked
		if err := in.Decode(&a); err != nil {
			return err
		}
		deeds.Go(func() {
			r := a.D.do(context.Background(), store)
			writing.Lock()
			defer writing.Unlock()
			_ = out.Encode(answered{a.N, r})
		})
	}
}

// startDoer starts one, that lives as long as the test, or until it is killed.
func (s *env) startDoer(t *testing.T, o inventory.Options) (do worker, kill func()) {
	t.Helper()
	p := s.startProcess(t, o)
	return p.do, p.kill
}

func (s *env) startProcess(t *testing.T, o inventory.Options) *process {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), sellerDSN+"="+s.dsn, sellerOptions+"="+string(options))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, asks: json.NewEncoder(in), waiting: map[int]chan reply{}, gone: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(bufio.NewReader(out))
	}()
	end := sync.OnceFunc(func() {
		<-read
		_ = cmd.Wait() // it may say that it was killed
	})
	t.Cleanup(func() {
		_ = in.Close()
		end()
	})
	p.kill = func() {
		_ = cmd.Process.Kill()
		end()
	}
	return p
}

// process is a process that does ops, as its test sees it.
type process struct {
	cmd  *exec.Cmd
	kill func() // kill -9

	mu      sync.Mutex
	asks    *json.Encoder
	n       int
	waiting map[int]chan reply
	gone    chan struct{}
}

func (p *process) read(out *bufio.Reader) {
	defer close(p.gone)
	for in := json.NewDecoder(out); ; {
		var a answered
		if in.Decode(&a) != nil {
			return
		}
		p.mu.Lock()
		p.waiting[a.N] <- a.R
		delete(p.waiting, a.N)
		p.mu.Unlock()
	}
}

func (p *process) do(ctx context.Context, d op) (reply, error) {
	answer := make(chan reply, 1)
	p.mu.Lock()
	p.n++
	p.waiting[p.n] = answer
	err := p.asks.Encode(asked{p.n, d})
	p.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	select {
	case r := <-answer:
		return r, nil
	case <-p.gone:
		return reply{}, fmt.Errorf("the process is gone")
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

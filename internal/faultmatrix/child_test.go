package faultmatrix

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const childConfig = "DBLOCK_TEST_MATRIX_WORKER"

// runAsWorker does not return in a process that a run has started. TestMain calls it first.
func runAsWorker() {
	text := os.Getenv(childConfig)
	if text == "" {
		return
	}
	if err := runChild(text); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runChild works until the commands to stop and to end. Without its parent it ends at once.
func runChild(text string) error {
	var cfg config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	w, err := startWorker(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
		case "hog":
			d, err := time.ParseDuration(rest)
			if err != nil {
				return err
			}
			w.hog(d)
		case "clock":
			fmt.Println(time.Now().Unix())
		case "stop":
			w.stopOps()
			fmt.Println("stopped")
		case "end":
			err := w.end()
			fmt.Println("ended")
			return err
		}
	}
	return nil
}

// child is a worker process.
type child struct {
	n    int
	cmd  *exec.Cmd
	in   io.WriteCloser
	says chan string // its lines; closed when it has ended
}

// startChild starts a process of this program, or of another one that calls Main.
func startChild(program string, cfg config) (*child, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	c := &child{n: cfg.N, cmd: exec.Command(program), says: make(chan string, 8)}
	c.cmd.Env = append(os.Environ(), childConfig+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.says <- lines.Text()
		}
		close(c.says)
	}()
	return c, nil
}

// send sends a command.
func (c *child) send(format string, args ...any) error {
	_, err := fmt.Fprintf(c.in, format+"\n", args...)
	return err
}

// wait waits for what it says next.
func (c *child) wait(ctx context.Context, word string) error {
	select {
	case line, open := <-c.says:
		if !open || line != word {
			return fmt.Errorf("worker %d said %q instead of %q", c.n, line, word)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("worker %d did not say %q: %w", c.n, word, ctx.Err())
	}
}

// kill ends it at once, and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.in.Close()
	for range c.says {
	}
	_ = c.cmd.Wait()
}

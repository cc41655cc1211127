package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// peerServer is how to run a server that a peer's locks live on.
type peerServer struct {
	name, daemon    string
	envURL, envPath string // variables: the URL of a running server, and a binary
	durability      string // of a server that is started here

	// command sets up a server that listens on a port of 127.0.0.1 and has its data in dir. It
	// returns the server's URL.
	command func(cmd *exec.Cmd, dir string, port int) (url string)

	// version asks a running server for its version.
	version func(ctx context.Context, url string) (string, error)
}

// server is one that runs.
type server struct {
	described
	url   string
	stop  func() error
	pid   int // 0: it was not started here
	ended chan struct{}
}

// readyTimeout bounds the start of a server.
const readyTimeout = 30 * time.Second

// start starts a server for one scenario, or returns the one that a variable names. It is as
// durable as its makers deliver it, because that is how it is run for locks.
func (p peerServer) start(ctx context.Context) (*server, error) {
	if url := os.Getenv(p.envURL); url != "" {
		version, err := p.version(ctx, url)
		if err != nil {
			return nil, fmt.Errorf("%s: the server there does not answer: %w", p.envURL, err)
		}
		return &server{described: p.described(version, "set up by its owner, from "+p.envURL), url: url, stop: func() error { return nil }}, nil
	}
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dblock-peer-")
	if err != nil {
		return nil, err
	}
	s, err := p.run(ctx, path, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), os.RemoveAll(dir))
	}
	return s, nil
}

func (p peerServer) described(version, durability string) described {
	return described{p.name, version + " (" + durability + ")"}
}

// find looks on the PATH, and where packages put the daemon.
func (p peerServer) find() (string, error) {
	paths := []string{p.daemon, "/usr/bin/" + p.daemon, "/usr/local/bin/" + p.daemon, "/opt/homebrew/bin/" + p.daemon}
	if path := os.Getenv(p.envPath); path != "" {
		paths = []string{path}
	}
	for _, path := range paths {
		if found, err := exec.LookPath(path); err == nil {
			return filepath.Abs(found)
		}
	}
	return "", fmt.Errorf("no %[1]s server found. Do one of these: set %[2]s to a running server; set %[3]s to a binary of %[4]s; "+
		"install one (Debian and Ubuntu: scripts/servers.sh peers; macOS: brew install %[1]s)", p.name, p.envURL, p.envPath, p.daemon)
}

// run starts the daemon, and returns when it answers.
func (p peerServer) run(ctx context.Context, path, dir string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Dir = dir
	var log lockedBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	s := &server{url: p.command(cmd, dir, port), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.pid = cmd.Process.Pid
	go func() {
		_ = cmd.Wait() // it is killed at last
		close(s.ended)
	}()
	s.stop = sync.OnceValue(func() error {
		_ = cmd.Process.Kill()
		<-s.ended
		return os.RemoveAll(dir)
	})
	version, err := p.await(ctx, s)
	if err != nil {
		return nil, errors.Join(err, s.stop(), errors.New(log.tail()))
	}
	s.described = p.described(version, p.durability)
	return s, nil
}

// await waits until the server answers.
func (p peerServer) await(ctx context.Context, s *server) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if version, err = p.version(ctx, s.url); err == nil {
			return version, nil
		}
		select {
		case <-s.ended:
			return "", errors.New("it ended at once")
		case <-ctx.Done():
			return "", fmt.Errorf("it does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Close ends the server if it was started here.
func (s *server) Close() error { return s.stop() }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// lockedBuffer is the log of a server.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// tail is the last lines.
func (b *lockedBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := slices.Collect(strings.Lines(b.text.String()))
	return strings.Join(lines[max(0, len(lines)-10):], "")
}

// described is a bench.Described.
type described struct{ engine, server string }

func (d described) Engine() string { return d.engine }
func (d described) Server() string { return d.server }

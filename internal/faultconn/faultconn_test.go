package faultconn

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// echo answers each line with itself, and reports each line that it got.
func echo(t *testing.T) (addr string, got <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	done := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						lines <- "end"
						return
					}
					lines <- line
					_, _ = c.Write([]byte(line))
				}
			}()
		}
	}()
	return listener.Addr().String(), lines
}

// ask writes a line and reads the answer.
func ask(c net.Conn) (string, error) {
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	b := make([]byte, 16)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func TestStrikes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     Mode
		k        int
		answer   string
		err      error
		received []string // by the server, before this side closes
	}{
		"undisturbed":        {CutBefore, 3, "hello\n", nil, []string{"hello\n"}},
		"write, before":      {CutBefore, 1, "", ErrCut, []string{"end"}},
		"read, before":       {CutBefore, 2, "", ErrCut, []string{"hello\n", "end"}},
		"write, after":       {CutAfter, 1, "", ErrCut, []string{"hello\n", "end"}},
		"read, after":        {CutAfter, 2, "", ErrCut, []string{"hello\n", "end"}},
		"write, stalled":     {Stall, 1, "", os.ErrDeadlineExceeded, nil},
		"read, stalled":      {Stall, 2, "", os.ErrDeadlineExceeded, []string{"hello\n"}},
		"write, late":        {Late, 1, "", ErrCut, nil},
		"hook before write":  {HookBefore, 1, "hello\n", nil, []string{"hello\n"}},
		"hook after reading": {HookAfter, 2, "hello\n", nil, []string{"hello\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, got := echo(t)
			var d Dialer
			conn, err := d.DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			hooked := 0
			d.Arm(c.k, c.mode, func() { hooked++ })
			if c.mode == Stall {
				_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
			}
			answer, err := ask(conn)
			if answer != c.answer || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v, want %q, %v", answer, err, c.answer, c.err)
			}
			if struck := d.Disarm(); struck != (c.k <= 2) {
				t.Errorf("struck: %v", struck)
			}
			if wantHook := c.mode == HookBefore || c.mode == HookAfter; (hooked == 1) != wantHook {
				t.Errorf("the hook was called %d times", hooked)
			}
			for _, want := range c.received {
				if line := <-got; line != want {
					t.Errorf("the server got %q, want %q", line, want)
				}
			}
			select {
			case line := <-got:
				t.Errorf("the server got %q as well", line)
			default:
			}
		})
	}
}

// TestArmAt: only the connection that writes the text is struck, at calls that are counted from
// that write on.
func TestArmAt(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	for k, want := range map[int]error{1: ErrCut, 2: ErrCut, 3: nil} {
		var d Dialer
		one, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		other, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		d.ArmAt("hello", k, CutBefore)
		if _, err := other.Write([]byte("good day\n")); err != nil {
			t.Errorf("call %d: another text: %v", k, err)
		}
		if _, err := ask(one); !errors.Is(err, want) {
			t.Errorf("call %d: got %v, want %v", k, err, want)
		}
		if _, err := ask(other); err != nil {
			t.Errorf("call %d: another connection: %v", k, err)
		}
		if struck := d.Disarm(); struck != (want != nil) || d.Calls() > 2 {
			t.Errorf("call %d: struck %v, %d calls", k, struck, d.Calls())
		}
		d.CloseAll()
	}
}

// TestLateComesWithRelease: what this side takes for cut arrives, even after this side closed.
func TestLateComesWithRelease(t *testing.T) {
	t.Parallel()
	addr, got := echo(t)
	var d Dialer
	conn, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	d.Arm(1, Late, nil)
	if _, err := ask(conn); !errors.Is(err, ErrCut) {
		t.Errorf("got %v", err)
	}
	_ = conn.Close()
	d.Release()
	for _, want := range []string{"hello\n", "end"} {
		if line := <-got; line != want {
			t.Errorf("the server got %q, want %q", line, want)
		}
	}
	d.Release() // again it does nothing
}

// TestLateEndsAReadUnderWay: drivers read in one goroutine while they write in another.
func TestLateEndsAReadUnderWay(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	var d Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	d.Arm(2, Late, nil)
	read := make(chan error)
	go func() {
		_, err := conn.Read(make([]byte, 16))
		read <- err
	}()
	for d.Calls() == 0 {
		runtime.Gosched()
	}
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		t.Error(err)
	}
	if err := <-read; !errors.Is(err, ErrCut) {
		t.Errorf("got %v", err)
	}
	d.Release()
}

func TestCloseAllAndCalls(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	var d Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	d.Arm(0, CutBefore, nil)
	if _, err := ask(conn); err != nil || d.Calls() != 2 || d.Disarm() {
		t.Errorf("%v after %d calls", err, d.Calls())
	}
	d.CloseAll()
	if _, err := ask(conn); !errors.Is(err, ErrCut) {
		t.Errorf("got %v", err)
	}
}

//go:build unix

package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The program and a shell that it started hold a pipe, which ends with the last of them.
func TestPgbenchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	if !hasPgbench(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, w := openPgbenchOn(t, "SELECT 1;\n\\shell sleep 1000 > "+path+"\n", "", 1)
	ctx, end := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := runPgbench(ctx, t, w, time.Hour)
		result <- err
	}()
	pipe, err := os.Open(path) // waits until the shell has it open
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	cause := errors.New("enough")
	end(cause)
	if err := <-result; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if _, err := io.ReadAll(pipe); err != nil {
		t.Error(err)
	}
}

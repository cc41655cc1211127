//go:build unix && !solaris && !aix

package devdb

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFaultsOfParents(t *testing.T) {
	t.Parallel()
	eachOf(t, startable(t), func(t *testing.T, kind Kind) {
		tmp := publicDir(t)
		p := startParent(t, kind, self(t), tmp, nil)
		if !alive(p.server) {
			t.Fatal("the server does not run")
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Wait(); err == nil {
			t.Fatal("the child ended before it was killed")
		}
		eventually(t, "the server follows its parent", func() bool { return !alive(p.server) })
		if _, err := os.Stat(p.dir); err != nil {
			t.Fatalf("the folder is gone before anybody swept it: %v", err)
		}

		next := startParent(t, kind, self(t), tmp, nil)
		if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the next start left the dead parent's folder: %v", err)
		}
		if !alive(next.server) {
			t.Error("the second server does not run")
		}
		endOrderly(t, next)
		if alive(next.server) {
			t.Error("the server outlived Close")
		}
	})
}

func endOrderly(t *testing.T, p *parent) {
	t.Helper()
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the child: %v", err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Close left its folder: %v", err)
	}
}

// Most developers are ordinary users; containers run as root. The other tests run as the current
// user. If that is root, this one runs as an ordinary user.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	eachOf(t, startable(t), func(t *testing.T, kind Kind) {
		dir := publicDir(t)
		tmp := filepath.Join(dir, "tmp")
		if err := os.Mkdir(tmp, 0o755); err != nil {
			t.Fatal(err)
		}
		var as *syscall.Credential
		if os.Geteuid() == 0 {
			as = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
			if err := os.Chown(tmp, unprivileged, unprivileged); err != nil {
				t.Fatal(err)
			}
		}
		binary := filepath.Join(dir, "child") // go test's own folder is closed to other users
		copyFile(t, self(t), binary)
		endOrderly(t, startParent(t, kind, binary, tmp, as))
	})
}

// copyFile copies a program. No process is forked meanwhile: it would have the new file open for
// writing until it executes its own, and the copy could not be executed.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestSweepSparesTheLiving(t *testing.T) {
	t.Parallel()
	dir, err := makeFolder()
	if err != nil {
		t.Fatal(err)
	}
	sweepOne(dir.path)
	if _, err := os.Stat(dir.path); err != nil {
		t.Errorf("swept a folder whose lock is held: %v", err)
	}
	if err := dir.remove(); err != nil {
		t.Error(err)
	}

	unlocked := filepath.Join(t.TempDir(), folderPrefix+"new")
	if err := os.Mkdir(unlocked, 0o700); err != nil {
		t.Fatal(err)
	}
	sweepOne(unlocked)
	if _, err := os.Stat(unlocked); err != nil {
		t.Errorf("swept a folder that its maker was about to lock: %v", err)
	}
}

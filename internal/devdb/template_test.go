//go:build unix && !solaris && !aix

package devdb

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTemplates starts a server twice: the second time nothing is installed, and the server is
// another one.
func TestTemplates(t *testing.T) {
	t.Setenv(envTemplates, filepath.Join(t.TempDir(), "templates"))
	eachOf(t, startable(t), func(t *testing.T, kind Kind) {
		first := start(t, kind, false)
		before := templatesOf(t, kind)
		second := start(t, kind, false)
		if after := templatesOf(t, kind); len(before) != 1 || len(after) != 1 {
			t.Errorf("templates %q, then %q; want one", before, after)
		}
		if first.Dir() == second.Dir() || first.Port() == second.Port() {
			t.Errorf("both servers are at %s, port %d", first.Dir(), first.Port())
		}
		for _, s := range []*Server{first, second} {
			if _, _, err := s.CreateDatabase(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if a, b := serverUUID(t, first), serverUUID(t, second); kind == MySQL && (a == "" || a == b) {
			t.Errorf("the servers' UUIDs are %q and %q", a, b)
		}
	})
}

// templatesOf wants the folders closed to other users: the data holds a password.
func templatesOf(t *testing.T, kind Kind) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(templatesDir(), string(kind)+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, templatesDir()) {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want it closed to others", path, st.Mode(), err)
		}
	}
	return paths
}

func serverUUID(t *testing.T, s *Server) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir(), dataName, autoName))
	if err != nil {
		return ""
	}
	_, uuid, _ := strings.Cut(string(text), "server-uuid=")
	return strings.TrimSpace(uuid)
}

// TestTemplateOfAnotherInstaller: what another installer, other arguments or another password made
// is not copied.
func TestTemplateOfAnotherInstaller(t *testing.T) {
	t.Setenv(envTemplates, t.TempDir())
	installer := filepath.Join(publicDir(t), "installer")
	script := func(text string) {
		if err := os.WriteFile(installer, []byte("#!/bin/sh\n"+text+" > result\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install := func(password string, args ...string) string {
		t.Helper()
		dir, err := makeFolder()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dir.remove() }()
		l := &local{bin: &binaries{kind: Postgres}, dir: dir, password: password}
		data := dir.join(dataName)
		if err := os.Mkdir(data, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := giveToServer(data); err != nil {
			t.Fatal(err)
		}
		if err := l.install(context.Background(), installer, args); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(data, "result"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	script(`echo $$ "$1"`)
	first := install("p", "a")
	if got := install("p", "a"); got != first {
		t.Errorf("installed again: %q after %q", got, first)
	}
	for _, other := range []string{install("q", "a"), install("p", "b")} {
		if other == first {
			t.Errorf("%q was copied for another password or other arguments", first)
		}
	}
	script(`echo "a newer one: $$"`)
	if got := install("p", "a"); got == first {
		t.Errorf("%q was copied for another installer", first)
	}
}

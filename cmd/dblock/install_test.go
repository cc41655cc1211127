package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	modulePath    = "github.com/dblock-go/dblock"
	moduleVersion = "v0.999.0"
)

// TestInstall runs the README's commands in an empty folder and in a new service, with a module
// proxy of this working tree. The builds only print what they would run (-n): modules, their
// checksums and all packages are resolved before that, and the other tests compile the same
// packages.
func TestInstall(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^    go (install|get|run) ([^#\n]*)`).FindAllStringSubmatch(string(readme), -1)
	install := slices.IndexFunc(commands, func(c []string) bool { return c[1] == "install" })
	get := slices.IndexFunc(commands, func(c []string) bool { return c[1] == "get" })
	if install < 0 || get < 0 {
		t.Fatalf("the README has the commands %q, want go install and go get", commands)
	}
	env := moduleProxy(t)
	empty, service := t.TempDir(), t.TempDir()
	printed := goCommand(t, empty, env, append([]string{"install", "-n"}, strings.Fields(commands[install][2])...)...)
	goCommand(t, service, env, "mod", "init", "example.com/service")
	goCommand(t, service, env, append([]string{"get"}, strings.Fields(commands[get][2])...)...)
	for command, printed := range map[string]string{
		"go install": printed,
		"go tool":    goCommand(t, service, env, "build", "-n", "-o", "dblock", "tool"), // what go tool builds
	} {
		want := `path\t` + modulePath + `/cmd/dblock\nmod\t` + modulePath + `\t` + moduleVersion + `\t`
		if !strings.Contains(printed, want) {
			t.Errorf("%s does not build %s:\n%s", command, want, printed)
		}
	}
}

func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// moduleProxy returns an environment in which this module comes from the working tree, and all
// others from the module cache. Of the versions that no build uses the cache need not have a
// go.mod. They get an empty one, so nothing is downloaded.
func moduleProxy(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..")
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(strings.TrimSpace(goCommand(t, ".", nil, "env", "GOMODCACHE")), "cache", "download")
	own := "/" + modulePath + "/@v/"
	files := map[string][]byte{
		own + "list":                  []byte(moduleVersion + "\n"),
		own + moduleVersion + ".info": fmt.Appendf(nil, `{"Version": %q, "Time": "2026-01-01T00:00:00Z"}`, moduleVersion),
		own + moduleVersion + ".mod":  mod,
		own + moduleVersion + ".zip":  zipModule(t, root),
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := files[r.URL.Path], error(nil)
		if content == nil {
			content, err = os.ReadFile(filepath.Join(cache, filepath.FromSlash(r.URL.Path)))
		}
		path, isMod := strings.CutSuffix(r.URL.Path, ".mod")
		switch {
		case err == nil:
			_, _ = w.Write(content)
		case isMod:
			path, _, _ = strings.Cut(path[1:], "/@v/")
			_, _ = fmt.Fprintf(w, "module %s\n", unescaped(path))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(proxy.Close)
	return []string{
		"GOPROXY=" + proxy.URL, "GOMODCACHE=" + t.TempDir(), "GOBIN=" + t.TempDir(), "GOFLAGS=-modcacherw -buildvcs=false",
		"GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=none", "GOWORK=off", "GO111MODULE=on", "GOTOOLCHAIN=local",
	}
}

// unescaped is a module's path of a proxy's: !x stands for X.
func unescaped(path string) string {
	return regexp.MustCompile(`![a-z]`).ReplaceAllStringFunc(path, func(s string) string { return strings.ToUpper(s[1:]) })
}

// zipModule packs the module's files as a proxy has them: without the modules below it.
func zipModule(t *testing.T, root string) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		w, err := z.Create(modulePath + "@" + moduleVersion + "/" + filepath.ToSlash(name))
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

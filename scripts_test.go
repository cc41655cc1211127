package dblock_test

import (
	"crypto/sha512"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fetchServers calls a function of scripts/fetch-servers.sh.
func fetchServers(t *testing.T, args ...string) error {
	t.Helper()
	call := append([]string{"-c", `. scripts/fetch-servers.sh; "$@"`, "bash"}, args...)
	return exec.CommandContext(t.Context(), "bash", call...).Run()
}

// TestFetchedPackagesStayInTheirFolder: a package lists links. One that leaves its folder, by its
// name or by what it names, is refused, and so is one whose place is behind another link.
func TestFetchedPackagesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Log("no node: the script needs it, too")
		return
	}
	for list, fine := range map[string]bool{
		`[{"source": "native/lib/a.so.1", "target": "native/lib/a.so"}]`:                                                   true,
		`[{"source": "native/lib/a.so.1", "target": "../victim"}]`:                                                         false,
		`[{"source": "../victim", "target": "native/lib/a.so"}]`:                                                           false,
		`[{"source": "native/lib/a.so.1", "target": "/tmp/../` + "x" + `"}]`:                                               false,
		`[{"source": "native", "target": "native/out"}, {"source": "native/lib/a.so.1", "target": "native/out/lib/a.so"}]`: false,
	} {
		root := t.TempDir()
		folder := filepath.Join(root, "package")
		if err := os.MkdirAll(filepath.Join(folder, "native", "lib"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			filepath.Join(root, "victim"):                       "whole",
			filepath.Join(folder, "native", "lib", "a.so.1"):    "library",
			filepath.Join(folder, "native", "pg-symlinks.json"): list,
		} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := fetchServers(t, "make_links", folder); (err == nil) != fine {
			t.Errorf("%s: %v", list, err)
		}
		if text, err := os.ReadFile(filepath.Join(root, "victim")); err != nil || string(text) != "whole" {
			t.Errorf("%s: a file outside of the folder is %q, %v", list, text, err)
		}
	}
}

// TestFetchedPackagesAreThoseThatWereMeant, by their hash.
func TestFetchedPackagesAreThoseThatWereMeant(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "a.tgz")
	if err := os.WriteFile(archive, []byte("archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512([]byte("archive"))
	if err := fetchServers(t, "has_sha512", archive, base64.StdEncoding.EncodeToString(sum[:])); err != nil {
		t.Errorf("the archive that was meant: %v", err)
	}
	sum[0]++
	if err := fetchServers(t, "has_sha512", archive, base64.StdEncoding.EncodeToString(sum[:])); err == nil {
		t.Error("another archive has the same hash")
	}
}

// TestActionsArePinned: every action of the workflows is named by its commit. A tag can be moved.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(".github", "workflows", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	pinned := regexp.MustCompile(`uses: \S+@[0-9a-f]{40}( |$)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %s", file, line)
			}
		}
	}
}

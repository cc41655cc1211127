package dblock_test

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)|\b(?:src|href)="([^"]+)"`)
	linkText     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	codeInLine   = regexp.MustCompile("`[^`]*`")
	heading      = regexp.MustCompile(`^#{1,6} +(.+)$`)
)

// TestDocsLinks follows the relative links of all pages, and their anchors.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	for page, text := range markdownPages(t) {
		for _, line := range proseOf(text) {
			for _, match := range markdownLink.FindAllStringSubmatch(codeInLine.ReplaceAllString(line, ""), -1) {
				link, err := url.Parse(match[1] + match[2])
				if err != nil {
					t.Errorf("%s: %v", page, err)
				} else if link.Scheme == "" {
					checkLink(t, page, link)
				}
			}
		}
	}
}

func checkLink(t *testing.T, page string, link *url.URL) {
	t.Helper()
	target := page
	if link.Path != "" {
		target = path.Join(path.Dir(page), link.Path)
	}
	text, err := os.ReadFile(filepath.FromSlash(target))
	switch {
	case err != nil:
		if info, statErr := os.Stat(filepath.FromSlash(target)); statErr != nil || !info.IsDir() {
			t.Errorf("%s links to %s: %v", page, link, err)
		}
	case link.Fragment != "" && path.Ext(target) == ".md" && !anchorsOf(string(text))[link.Fragment]:
		t.Errorf("%s links to %s, which has no such heading", page, link)
	}
}

// TestDocsColumns keeps the prose of the documentation within 100 columns.
func TestDocsColumns(t *testing.T) {
	t.Parallel()
	for page, text := range markdownPages(t) {
		if page != "README.md" && path.Dir(page) != "docs" {
			continue
		}
		for _, line := range proseOf(text) {
			if utf8.RuneCountInString(line) > 100 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s: longer than 100 columns: %s", page, line)
			}
		}
	}
}

// markdownPages reads all pages of the repository.
func markdownPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "site" || file != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case filepath.Ext(file) == ".md":
			text, err := os.ReadFile(file)
			pages[filepath.ToSlash(file)] = string(text)
			return err
		}
		return nil
	})
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	return pages
}

// proseOf returns the lines of a page that are not code.
func proseOf(text string) (lines []string) {
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// anchorsOf returns the anchors of a page's headings, as GitHub and the site make them.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, line := range proseOf(text) {
		title := heading.FindStringSubmatch(line)
		if title == nil {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, linkText.ReplaceAllString(title[1], "$1"))
		anchors[anchor] = true
	}
	return anchors
}

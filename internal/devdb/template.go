package devdb

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	passwordName = "password"

	// autoName is the file with the UUID of a MySQL server. The server makes it if it is missing.
	autoName = "auto.cnf"
)

// templatesDir is the folder with the data folders that installers made; "" if there is none.
func templatesDir() string { return os.Getenv(envTemplates) }

// install runs an installer, or copies what it once made with the same arguments. An installer
// takes ten times as long as the copy.
func (l *local) install(ctx context.Context, path string, args []string) error {
	if templatesDir() == "" {
		return l.runTool(ctx, path, args)
	}
	key, err := l.templateKey(path, args)
	if err != nil {
		return err
	}
	template, data := filepath.Join(templatesDir(), key), l.dir.join(dataName)
	err = copyData(template, data, giveToServer)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.runTool(ctx, path, args); err != nil {
		return err
	}
	return keepTemplate(data, template)
}

// templateKey differs if the installer, its arguments or the password of the data differ.
func (l *local) templateKey(path string, args []string) (string, error) {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintln(file, st.Size(), st.ModTime().UnixNano(), l.bin.daemon, l.bin.version, l.password) + strings.Join(args, "\n")
	sum := sha256.Sum256([]byte(strings.ReplaceAll(text, l.dir.path, "")))
	return fmt.Sprintf("%s-%s-%s", l.bin.kind, l.bin.version, hex.EncodeToString(sum[:8])), nil
}

// keepTemplate leaves a complete copy, or none. If another process was first, its copy stays.
func keepTemplate(data, template string) error {
	made, err := os.MkdirTemp(filepath.Dir(template), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	if err := copyData(data, made, func(string) error { return nil }); err != nil {
		return err
	}
	err = os.Rename(made, template)
	if _, e := os.Stat(template); e == nil {
		return nil
	}
	return err
}

// copyData copies what lies in the folder from into the folder to, and calls own for each copy.
func copyData(from, to string, own func(path string) error) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == from || entry.Name() == autoName {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		copied := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			err = os.Mkdir(copied, info.Mode().Perm())
		case entry.Type().IsRegular():
			err = copyContents(path, copied, info.Mode().Perm())
		default:
			return nil // a socket of the installer's server
		}
		if err != nil {
			return err
		}
		return own(copied)
	})
}

func copyContents(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// newPassword is at random. Servers from templates share one, because the data of Postgres holds
// it.
func newPassword() (string, error) {
	b := make([]byte, 12)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	password := hex.EncodeToString(b)
	if templatesDir() == "" {
		return password, nil
	}
	return sharedPassword(password)
}

// sharedPassword is the one that the templates have; if they have none, it becomes theirs.
func sharedPassword(password string) (string, error) {
	path := filepath.Join(templatesDir(), passwordName)
	if b, err := os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
		return string(b), err
	}
	if err := os.MkdirAll(templatesDir(), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(templatesDir(), ".new-") // only its owner can read it
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(password)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	b, err := os.ReadFile(path) // another process may have been first
	return string(b), err
}

package migrations

import (
	"io/fs"
	"strings"
)

// rewritten is a file system whose files' text goes through a function when they are opened.
type rewritten struct {
	fs.FS
	rewrite func(string) string
}

func (r rewritten) Open(name string) (fs.File, error) {
	original, err := r.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := original.Stat()
	if err != nil || info.IsDir() {
		return original, err
	}
	defer func() { _ = original.Close() }() // was only read
	text, err := fs.ReadFile(r.FS, name)
	if err != nil {
		return nil, err
	}
	changed := r.rewrite(string(text))
	return file{strings.NewReader(changed), resized{info, int64(len(changed))}}, nil
}

type file struct {
	*strings.Reader
	info fs.FileInfo
}

func (f file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f file) Close() error               { return nil }

type resized struct {
	fs.FileInfo
	size int64
}

func (r resized) Size() int64 { return r.size }

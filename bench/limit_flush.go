package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
)

const (
	flushBlock = 8 << 10 // a page of Postgres' log
	flushFile  = 1 << 20
)

// flusher overwrites one block of a file that has its full size already, so that a flush has no
// metadata to write. It is what pg_test_fsync does, whose figure it can be compared with.
type flusher struct {
	file  *os.File
	block []byte
	count uint64
}

func openFlush(_ context.Context, env *Env) (Workload, error) {
	f, err := newFlusher(env)
	if err != nil {
		return nil, err
	}
	return calls{f.flush, f.remove}, nil
}

func newFlusher(env *Env) (*flusher, error) {
	dir := env.Dir
	if env.Server != nil && env.Server.Dir() != "" {
		dir = env.Server.Dir()
	}
	file, err := os.CreateTemp(dir, "flush-")
	if err != nil {
		return nil, err
	}
	f := &flusher{file: file, block: make([]byte, flushBlock)}
	if err := f.fill(); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

// fill writes the file once: what was only reserved is marked as unwritten, and the mark would have
// to be taken off in the first flush.
func (f *flusher) fill() error {
	if _, err := f.file.Write(make([]byte, flushFile)); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f *flusher) flush(context.Context) (int, error) {
	f.count++
	binary.LittleEndian.PutUint64(f.block, f.count) // no two blocks alike, which a disk could notice
	if _, err := f.file.WriteAt(f.block, 0); err != nil {
		return 0, err
	}
	return 1, fdatasync(f.file)
}

func (f *flusher) remove() error {
	return errors.Join(f.file.Close(), os.Remove(f.file.Name()))
}

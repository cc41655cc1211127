package devdb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// StartStandby gives a hot standby of a Postgres server that Start started from local binaries: a server of its own that
// follows the log of the primary and answers reads. Users and passwords are the primary's.
func StartStandby(ctx context.Context, primary *Server) (*Server, error) {
	if primary.local == nil || primary.Kind != Postgres {
		return nil, primary.notOurs("follow")
	}
	dir, err := makeFolder()
	if err != nil {
		return nil, fmt.Errorf("start a standby: %w", err)
	}
	bin := *primary.local.bin
	bin.install = filepath.Join(filepath.Dir(bin.install), "pg_basebackup")
	l := &local{bin: &bin, dir: dir, engine: standbyEngine{primary: primary.local}}
	s := &Server{Kind: Postgres, Source: primary.Source, local: l}
	if err := l.startNew(ctx, s); err != nil {
		return nil, errors.Join(fmt.Errorf("start a standby from %s: %w", s.Source, err), l.close())
	}
	return s, nil
}

type standbyEngine struct {
	postgresEngine
	primary *local
}

// initialize copies the primary, and leaves with the copy how to go on following it.
func (e standbyEngine) initialize(ctx context.Context, l *local) error {
	l.password = e.primary.password // the users are the primary's, too
	return l.runTool(ctx, l.bin.install, []string{
		"-D", l.dir.join(dataName), "-d", e.adminDSN(e.primary), "-R", "-X", "stream", "-c", "fast", "-N",
	})
}

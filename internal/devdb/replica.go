package devdb

import (
	"context"
	"fmt"
	"path/filepath"
)

// replicaArgs are the arguments of a server of the MySQL family that replicates or is replicated.
func replicaArgs(kind Kind, id int) []string {
	args := []string{"--log-bin=binlog", "--sync-binlog=1", fmt.Sprintf("--server-id=%d", id)}
	if kind == MySQL {
		return append(args, "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
	}
	return args
}

// StartReplica starts a server with the users and passwords of primary, which Start started from
// local binaries. On Postgres it is a hot standby: it follows the primary and answers reads. On
// MySQL and MariaDB it is empty, and follows after CHANGE REPLICATION SOURCE.
func StartReplica(ctx context.Context, primary *Server) (*Server, error) {
	if primary.local == nil {
		return nil, primary.notOurs("replicate")
	}
	bin := *primary.local.bin
	l := &local{bin: &bin}
	if primary.Kind == Postgres {
		bin.install = filepath.Join(filepath.Dir(bin.install), "pg_basebackup")
		l.engine = standbyEngine{primary: primary.local}
	} else {
		l.engine, l.durable = replicaEngine{primary: primary.local}, primary.local.durable
	}
	return l.launch(ctx, "a replica", primary.Source)
}

type standbyEngine struct {
	postgresEngine
	primary *local
}

// initialize copies the primary. The copy says how to go on following it.
func (e standbyEngine) initialize(ctx context.Context, l *local) error {
	l.password = e.primary.password
	return l.runTool(ctx, l.bin.install, []string{
		"-D", l.dir.join(dataName), "-d", e.adminDSN(e.primary), "-R", "-X", "stream", "-c", "fast", "-N",
	})
}

type replicaEngine struct {
	mysqlEngine
	primary *local
}

func (e replicaEngine) initialize(ctx context.Context, l *local) error {
	l.password = e.primary.password
	return e.mysqlEngine.initialize(ctx, l)
}

func (e replicaEngine) args(l *local) []string {
	return append(e.mysqlEngine.args(l), replicaArgs(l.bin.kind, 2)...)
}

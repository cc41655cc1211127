package mysql_test

import (
	"database/sql"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestAGaleraNodeIsSeen, where the library is that makes a MariaDB one.
func TestAGaleraNodeIsSeen(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		found, err := filepath.Glob("/usr/lib*/galera*/libgalera_smm.so")
		if err != nil || len(found) == 0 || kind != devdb.MariaDB {
			t.Logf("no Galera for %s", kind)
			return
		}
		own := testdb.Own(t, kind, "--wsrep-on=ON", "--wsrep-provider="+found[0], "--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster",
			"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-node-address=127.0.0.1",
			"--wsrep-provider-options=gcache.size=8M;gmcast.listen_addr=tcp://"+freeAddress(t))
		if own == nil {
			return
		}
		s := inspect(t, connectTo(t, own))
		if err := s.SessionLocks(); !s.Galera || s.Group || !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "Galera") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestAMemberOfAGroupIsSeen, and a server that only could be one is not taken for it.
func TestAMemberOfAGroupIsSeen(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		if kind != devdb.MySQL {
			return
		}
		address := freeAddress(t)
		own := testdb.Own(t, kind, "--server-id=1", "--log-bin=log", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
			"--loose-group-replication-group-name=6f9aa1f5-8d4c-4c3f-9d0a-0d3a3f2a9f10", "--loose-group-replication-start-on-boot=OFF",
			"--loose-group-replication-local-address="+address, "--loose-group-replication-group-seeds="+address)
		if own == nil {
			return
		}
		conn := connectTo(t, own)
		if _, err := conn.ExecContext(t.Context(), "INSTALL PLUGIN group_replication SONAME 'group_replication.so'"); err != nil {
			t.Logf("no group replication here: %v", err)
			return
		}
		if s := inspect(t, conn); s.Group || s.SessionLocks() != nil {
			t.Errorf("before it is a member: %+v, %v", s, s.SessionLocks())
		}
		exec(t, conn, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION")
		s := inspect(t, conn)
		if err := s.SessionLocks(); !s.Group || s.Galera || !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "group") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func connectTo(t *testing.T, s *devdb.Server) *sql.Conn {
	t.Helper()
	db, err := sql.Open("mysql", s.AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return connect(t, db)
}

// freeAddress is for a server's second port, below those that the system hands out to clients.
func freeAddress(t *testing.T) string {
	t.Helper()
	for port := 20000 + os.Getpid()%10000; port < 32768; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

package devdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// mysqlEngine runs both MariaDB and MySQL.
type mysqlEngine struct{ disposable }

const (
	initFile = "init.sql"

	// tempName is the folder of a server's temporary files. In a folder that servers share, each
	// start deletes the temporary tables of the others.
	tempName = "tmp"
)

func (mysqlEngine) initialize(ctx context.Context, l *local) error {
	if err := writeInitFile(l); err != nil {
		return err
	}
	folder := l.dir.join(tempName)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	if err := giveToServer(folder); err != nil {
		return err
	}
	data, temp := "--datadir="+l.dir.join(dataName), "--tmpdir="+folder
	if l.bin.kind == MySQL {
		return l.install(ctx, l.bin.daemon, []string{
			"--no-defaults", "--initialize-insecure", data, temp, "--innodb-flush-method=nosync",
			"--innodb-redo-log-capacity=8M", "--skip-log-bin", "--secure-file-priv=NULL",
		})
	}
	return l.install(ctx, l.bin.install, []string{
		"--no-defaults", data, temp, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--skip-name-resolve", "--innodb-log-file-size=8M", "--innodb-flush-method=nosync",
	})
}

// writeInitFile has the server make, at each start, the one user that can come in over TCP. The
// users that the installers make have no password; they are left for the socket only, which lies in
// a folder that no other user can enter.
func writeInitFile(l *local) error {
	statements := []string{
		"CREATE USER IF NOT EXISTS 'dblock'@'127.0.0.1' IDENTIFIED BY '" + l.password + "'",
		"GRANT ALL ON *.* TO 'dblock'@'127.0.0.1' WITH GRANT OPTION",
		"DROP USER IF EXISTS 'root'@'127.0.0.1'",
		"DROP USER IF EXISTS 'root'@'::1'",
	}
	path := l.dir.join(initFile)
	// The init file takes one statement a line.
	if err := os.WriteFile(path, []byte(strings.Join(statements, ";\n")+";\n"), 0o600); err != nil {
		return err
	}
	return giveToServer(path)
}

func (mysqlEngine) args(l *local) []string {
	data := l.dir.join(dataName)
	args := []string{
		"--no-defaults", "--datadir=" + data, "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(l.port),
		"--socket=" + data + "/s.sock", "--pid-file=" + data + "/pid", "--init-file=" + l.dir.join(initFile),
		"--tmpdir=" + l.dir.join(tempName),
		"--skip-log-bin", "--skip-name-resolve",
		// A session whose client is gone stays until its statement ends, so a suite that cuts
		// connections needs many more than its pools hold.
		"--max-connections=1000",
	}
	if l.bin.kind == MySQL {
		return append(append(args, "--mysqlx=OFF", "--secure-file-priv=NULL"), mysqlSizes(l.durable)...)
	}
	return append(append(args, "--innodb-log-file-size="+mariadbLogSize(l)), mariadbSizes(l.durable)...)
}

func mysqlSizes(durable bool) []string {
	if durable {
		return []string{
			"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M", "--innodb-redo-log-capacity=256M",
		}
	}
	return []string{
		"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=8M",
		"--innodb-flush-method=nosync", "--innodb-doublewrite=OFF",
	}
}

func mariadbSizes(durable bool) []string {
	if durable {
		return []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M"}
	}
	return []string{
		"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M",
		"--innodb-flush-method=nosync", "--skip-innodb-doublewrite",
		// One file for all tables: tests make and drop databases in two thirds of the time.
		"--loose-innodb-file-per-table=OFF", "--innodb-autoextend-increment=8",
	}
}

// mariadbLogSize differs from the installer's if the server is durable: the first start makes the
// log anew.
func mariadbLogSize(l *local) string {
	if l.durable {
		return "256M"
	}
	return "8M"
}

func (mysqlEngine) adminDSN(l *local) string {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "dblock", l.password, "tcp", fmt.Sprintf("127.0.0.1:%d", l.port)
	return c.FormatDSN()
}

func (mysqlEngine) ready(ctx context.Context, l *local, s *Server) error {
	return s.withMySQL(ctx, func(db *sql.DB) error {
		var dir string
		if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir); err != nil {
			return err
		}
		return sameFolder(dir, l.dir.join(dataName))
	})
}

// Processlist is the server's table of sessions, on MySQL and MariaDB alike. MySQL's
// information_schema.processlist fails as long as any session runs a statement with bytes that are
// not UTF-8.
const Processlist = "/*!80022 performance_schema.processlist *//*M! information_schema.processlist */"
